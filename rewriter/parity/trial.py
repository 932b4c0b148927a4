"""What is fed to both sides of a comparison, and how a side is run on ORT CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.output import disk
from rewriter.parity.domains import Array
from rewriter.parity.feeds import Feeds, Layout, Scenario, layout, model_feeds
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


def trial(
    model: ir.Model, seed: int, count: int = 2, windows: Mapping[str, int] | None = None
) -> Trial:
    """Inputs for a model whose dims are fixed (others get small numbers that agree).

    Args:
        model: before or after it is lowered.
        seed: of the first scenario.
        count: of scenarios, at least.
        windows: as in :class:`Layout`.
    """
    return Trial(layout(model, windows), (), ()).others(model, seed, count)


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
    data, feeds = side.file.parent, read_by(side.model, given)
    job = child.Job(file, external_data_dir=data, config=EXACT, feeds=feeds)
    return child.run(job, time_limit=time_limit).outputs


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
        feeds = [{k: widened_array(v) for k, v in f.items()} for f in read_by(model, given)]
        job = child.Job(file, config=EXACT, feeds=feeds, outputs=outputs)
        return child.run(job, time_limit=time_limit).outputs
    finally:
        data.unlink(missing_ok=True)


def read_by(model: ir.Model, given: Trial) -> tuple[Feeds, ...]:
    """Feeds for the inputs a model has: the part of a result may need fewer than the original's."""
    names = {value.name for value in model.graph.inputs}
    return tuple({k: v for k, v in feed.items() if k in names} for feed in given.feeds)
