"""What is fed to both sides of a comparison, and how a side is run on ORT CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.output import disk
from rewriter.parity.domains import Array
from rewriter.parity.feeds import (
    Feeds,
    Layout,
    Scenario,
    layout,
    model_feeds,
    shortened,
)
from rewriter.parity.settings import EXACT, drop_accuracy_level
from rewriter.parity.widen import NotWidenable, half_of, widened, widened_array
from rewriter.runtime import child

Outputs = list[dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Trial:
    """What is fed to both sides of a comparison.

    Attributes:
        sizes: layout of the inputs.
        scenarios: how each feed was made.
        feeds: the inputs.
        inner: outputs of a slice that are inner values of the whole; masks are among them.
    """

    sizes: Layout
    scenarios: tuple[Scenario, ...]
    feeds: tuple[Feeds, ...]
    inner: frozenset[str] = frozenset()

    def others(self, model: ir.Model, seed: int, count: int) -> Trial:
        """The same with other numbers."""
        scenarios = tuple(self.sizes.scenarios(seed, count))
        feeds = tuple(model_feeds(model, self.sizes, s) for s in scenarios)
        return Trial(self.sizes, scenarios, feeds, self.inner)

    def of_slice(self, model: ir.Model, inner: frozenset[str], seed: int) -> Trial:
        """Inputs for a slice of the model.

        Args:
            model: the slice.
            inner: outputs of it that are inner values of the whole.
            seed: of the first scenario.
        """
        return replace(trial(model, seed, part_of=self.sizes), inner=inner)


def trial(
    model: ir.Model,
    seed: int,
    count: int = 2,
    windows: Mapping[str, int] | None = None,
    part_of: Layout | None = None,
) -> Trial:
    """Inputs for a model whose dims are fixed (others get small numbers that agree).

    Args:
        model: before or after it is lowered.
        seed: of the first scenario.
        count: of scenarios, at least.
        windows: as in :class:`Layout`.
        part_of: the layout of the whole, where the model is a slice.
    """
    return Trial(layout(model, windows, part_of), (), ()).others(model, seed, count)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two models that are compared; ``accuracy_level`` is removed from the graph.

    Attributes:
        model: the graph, constants in the folder of the file.
        file: the same as it is, for ORT's default options.
    """

    model: ir.Model
    file: Path


def exact_outputs(side: Side, given: Trial, file: Path, time_limit: float) -> Outputs:
    """What the model computes in float32, or as it is where it cannot be widened.

    ``file`` is where the model that runs is written.
    """
    if half_of(side.model) is not None:
        try:
            return run_model(widened(side.model), given, file, time_limit)
        except NotWidenable:
            pass
    return run_as_is(side, given, file, time_limit)


def run_as_is(side: Side, given: Trial, file: Path, time_limit: float) -> Outputs:
    """What the model computes in the types it has; its constants stay where they are."""
    drop_accuracy_level(side.model)
    ir.save(side.model, file)
    job = child.Job(file, external_data_dir=side.file.parent, config=EXACT)
    return run_feeds(job, side.model, given, time_limit)


def run_model(
    model: ir.Model,
    given: Trial,
    file: Path,
    time_limit: float,
    outputs: Sequence[str] | None = None,
) -> Outputs:
    """What a model in float32 computes; its constants are written too, and removed again.

    Args:
        model: widened.
        given: what to feed, in any type.
        file: where the model that runs is written.
        time_limit: seconds.
        outputs: those to compute; all when ``None``.

    Raises:
        OutOfResources: the disk is full.
    """
    drop_accuracy_level(model)
    data = file.with_name(f"{file.name}.data")
    try:
        with disk(file.parent):
            ir.save(model, file, external_data=data.name)
        wide = tuple({k: widened_array(v) for k, v in feed.items()} for feed in given.feeds)
        job = child.Job(file, config=EXACT, outputs=outputs)
        return run_feeds(job, model, replace(given, feeds=wide), time_limit)
    finally:
        data.unlink(missing_ok=True)


def run_feeds(job: child.Job, model: ir.Model, given: Trial, time_limit: float) -> Outputs:
    """Run a job with what is given for its model.

    Sequences go through the model that a buffer was made for one by one, where ONNX Runtime's
    GroupQueryAttention takes several tokens of one only.
    """
    feeds, batch = read_by(model, given), given.sizes.several
    names = [
        value.name for value in model.graph.inputs if (dims := dims_of(value)) and dims[0] is None
    ]
    if batch == 1 or not names:
        return child.run(replace(job, feeds=feeds), time_limit=time_limit).outputs
    rows = [
        {k: v[row : row + 1] if k in names else v for k, v in feed.items()}
        for feed in feeds
        for row in range(batch)
    ]
    found = child.run(replace(job, feeds=rows), time_limit=time_limit).outputs
    return [
        {name: np.concatenate([one[name] for one in found[at : at + batch]]) for name in found[at]}
        for at in range(0, len(found), batch)
    ]


def read_by(model: ir.Model, given: Trial) -> tuple[Feeds, ...]:
    """Feeds for the inputs a model has: the part of a result may need fewer than the original's.

    Where the result has a cache of fixed size whose first rows are not filled, the original gets
    one that is really shorter.
    """
    names = {value.name for value in model.graph.inputs}
    feeds = [{k: v for k, v in feed.items() if k in names} for feed in given.feeds]
    if given.sizes.right and given.sizes.padded:
        pairs = zip(feeds, given.scenarios, strict=True)
        feeds = [shortened(model, feed, given.sizes, scenario) for feed, scenario in pairs]
    return tuple(feeds)
