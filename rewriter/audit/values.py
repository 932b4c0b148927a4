"""Values that two graphs have in common, and what each graph computes for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.nodes import constant, dims_of
from rewriter.parity.domains import Array
from rewriter.parity.settings import EXACT, drop_accuracy_level
from rewriter.parity.trial import Outputs, Side, Trial, run_feeds, run_model
from rewriter.parity.widen import NotWidenable, half_of, widened, widened_array
from rewriter.runtime import child

_CHUNK = 256 * 1024 * 1024
"""Bytes of values that one run gives, at most (a larger one comes by itself)."""
_UNKNOWN_DIM = 64
"""A size to count with, where none is known."""


@dataclass(frozen=True, slots=True)
class Common:
    """A value of both graphs: a rule that replaces a node keeps the names of its outputs.

    Attributes:
        original: as the original has it.
        result: as the result has it.
    """

    original: ir.Value
    result: ir.Value

    @property
    def name(self) -> str:
        """Its name, in both."""
        return self.result.name or ""

    @property
    def bytes(self) -> int:
        """About how large it is in one run."""
        size = 8
        for dim in dims_of(self.result) or ():
            size *= _UNKNOWN_DIM if dim is None else dim
        return size


def common_values(original: ir.Model, result: ir.Model) -> list[Common]:
    """What both graphs compute under one name, in the order of the result."""
    there = {v.name: v for node in original.graph for v in node.outputs if v.name}
    return [
        Common(there[value.name], value)
        for node in result.graph
        for value in node.outputs
        if value.name in there and constant(value) is None and constant(there[value.name]) is None
    ]


def chunks(values: Sequence[Common], runs: int) -> Iterator[list[Common]]:
    """The values in runs of a size that memory holds."""
    chunk: list[Common] = []
    size = 0
    for value in values:
        if chunk and size + value.bytes * runs > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(value)
        size += value.bytes * runs
    if chunk:
        yield chunk


class Inner:
    """Runs a model on ORT CPU, exactly, for inner values too.

    Attributes:
        model: the graph that runs: in float32, where it computes in halves and can be widened.

    Args:
        side: the model; values become outputs of its graph as they are asked for.
        given: what to feed.
        folder: a temporary one.
        time_limit: seconds for each run.
    """

    def __init__(self, side: Side, given: Trial, folder: Path, time_limit: float) -> None:
        self._data = side.file.parent
        self._given, self._file, self._time = given, folder / "model.onnx", time_limit
        self.model, self._wide = _in_float32(side.model)
        drop_accuracy_level(self.model)
        self._found = {v.name: v for node in self.model.graph for v in node.outputs if v.name}
        self._outputs = list(self.model.graph.outputs)

    def run(self, names: Sequence[str]) -> Outputs:
        """The values of these names, in every run.

        Raises:
            RuntimeFault: ONNX Runtime fails, or takes too long.
        """
        inputs = {value.name for value in self.model.graph.inputs}
        asked = [name for name in names if name not in inputs]
        graph = self.model.graph
        graph.outputs[:] = [self._found[name] for name in asked]
        try:
            found = self._ran(asked) if asked else [{} for _ in self._given.feeds]
        finally:
            graph.outputs[:] = self._outputs
        for one, feed in zip(found, self._given.feeds, strict=True):
            given = {name: feed[name] for name in names if name in inputs}
            one |= {n: widened_array(a) for n, a in given.items()} if self._wide else given
        return found

    def _ran(self, names: Sequence[str]) -> list[dict[str, Array]]:
        if self._wide:
            return run_model(self.model, self._given, self._file, self._time, names)
        ir.save(self.model, self._file)
        job = child.Job(self._file, external_data_dir=self._data, config=EXACT, outputs=names)
        return run_feeds(job, self.model, self._given, self._time)


class Pair:
    """Two models that run on the same inputs.

    Args:
        original: the one that is right.
        result: the one in question.
        given: what to feed.
        folder: a temporary one.
        time_limit: seconds for each run.
    """

    def __init__(
        self, original: Side, result: Side, given: Trial, folder: Path, time_limit: float
    ) -> None:
        self.given = given
        made = []
        for label, side in (("original", original), ("result", result)):
            (folder / label).mkdir()
            made.append(Inner(side, given, folder / label, time_limit))
        self.original, self.result = made

    def run(self, names: Sequence[str]) -> tuple[Outputs, Outputs]:
        """Values of both, in every run: the original's, and the result's."""
        return self.original.run(names), self.result.run(names)


def _in_float32(model: ir.Model) -> tuple[ir.Model, bool]:
    """The model in float32, where it computes in halves and can be widened; whether it does."""
    if half_of(model) is not None:
        try:
            return widened(model), True
        except NotWidenable:
            pass
    return model, False
