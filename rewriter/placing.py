"""Placing a result on the target's own runtime, and comparing what it computes there.

Where the whole is too much for the budget, or for the memory that is free, a slice of the model
stands in, and the report says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from rewriter.activations.device import check_steps
from rewriter.budget import SLOWER, Budget
from rewriter.chain import merged, place_chain
from rewriter.cost import Cost, estimate
from rewriter.errors import OutOfResources, RuntimeFault
from rewriter.outcome import GraphOutcome, Parity
from rewriter.parity.device import DeviceRun, check_device
from rewriter.parity.domains import Array
from rewriter.parity.feeds import Feeds
from rewriter.parity.trial import Side, Trial, exact_outputs
from rewriter.placement import Placement, place, placeable
from rewriter.runtime.versions import installed
from rewriter.settings import Settings
from rewriter.slices import distinct
from rewriter.stages import Stages

_NO_RUNTIME = {
    "onnx-standard": "onnx-standard is no runtime",
    "ort-cuda": "not run, no runtime here: what its kernels take is declared by their documents",
}
"""Targets that nothing can be placed on, and why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What is placed: the whole result, or a slice of it.

    Attributes:
        file: the model.
        model: its graph.
        device: what to feed, where the device's outputs are compared.
        exact: what ONNX Runtime's CPU computes of that.
        parts: files that stand for it.
        floats: where its activations are quantized, what the float graph gives of the same.
    """

    file: Path
    model: ir.Model
    device: Trial | None
    exact: Sequence[dict[str, Array]]
    parts: Sequence[Path] = ()
    floats: Sequence[dict[str, Array]] = ()

    @property
    def runs(self) -> int:
        """How often the device runs it."""
        return len(self.device.feeds) if self.device else 0

    def held(self) -> Cost | None:
        """The cost of the largest part."""
        costs = [estimate(ir.load(part)) for part in self.parts]
        return max(costs, key=lambda cost: cost.size, default=None)


class Placing:
    """Places one result.

    Args:
        settings: what was asked.
        stages: of the run.
        budget: that all steps share.
    """

    def __init__(self, settings: Settings, stages: Stages, budget: Budget) -> None:
        self._settings = settings
        self._stage = stages
        self._budget = budget

    def unplaceable(self) -> str:
        """Why the runtime cannot be asked; empty if it can."""
        target, python = self._settings.target, self._settings.runtime
        if why := _NO_RUNTIME.get(target.ep):
            return why
        if not placeable(target.ep):
            return f"rewrite has no way to ask the runtime of {target.ep}"
        found = installed(target.ep, python)
        if found is None and python is not None:
            return f"{python} has no runtime of {target.ep}"
        if found is None:
            extra = {"ort-cpu": "ort"}.get(target.ep, target.ep)
            return f"no runtime of {target.ep} is installed (pip install 'ep-rewriter[{extra}]')"
        if found != target.version:
            return (
                f"{target.ep} {found} is installed, not {target.version} (--runtime PYTHON "
                "names an environment that has it)"
            )
        return ""

    def prove(self, graph: GraphOutcome, whole: Placed, scratch: Path) -> None:
        """Place a result, or a slice of it, and compare its outputs where that was asked.

        Raises:
            OutOfResources: memory ran out.
        """
        device = whole.device is not None
        if why_not := self.unplaceable():
            graph.notes.append(f"placement did not run: {why_not}")
            return
        placed: Placed | None = whole
        if why_not := self._budget.too_much(
            estimate(whole.model), whole.runs, self._budget.left(), whole.held()
        ):
            placed = self._part(graph, whole, scratch, why_not)
        if placed is not None:
            self._place(graph, placed)
        if device and graph.parity is not None:
            self._compare_device(graph, graph.parity, placed or whole, scratch)

    def _part(self, graph: GraphOutcome, whole: Placed, scratch: Path, why: str) -> Placed | None:
        """A slice to place instead of the whole; nothing if that is too much as well."""
        part = distinct(ir.load(whole.file))
        if part is None or self._budget.too_much(
            estimate(part.model), whole.runs, self._budget.slice_time()
        ):
            graph.notes.append(f"placement did not run: it {why}; no slice of it is small enough")
            return None
        graph.notes.append(f"placed was {part}: the whole {why}")
        graph.part = part
        file = part.save(scratch / "slice.onnx")
        if whole.device is None:
            return Placed(file, part.model, None, [])
        side = Side(ir.load(file), file)
        given = whole.device.of_slice(side.model, part.inner, self._settings.seed)
        device = self._affordable(estimate(part.model), given)
        if (runs := len(device.feeds)) < len(given.feeds):
            graph.notes.append(
                f"the slice runs on {runs} of {len(given.feeds)} inputs: time is short"
            )
        with self._stage("exact", "computing the slice on ONNX Runtime's CPU"):
            exact = exact_outputs(side, device, scratch / "exact.onnx", self._budget.slice_time())
        return Placed(file, part.model, device, exact)

    def _affordable(self, cost: Cost, given: Trial) -> Trial:
        """As many of the runs as there is time for on a machine that does other things too."""
        runs = len(given.feeds)
        while runs > 1 and self._budget.too_much(cost, runs, self._budget.left() / SLOWER):
            runs -= 1
        return replace(given, scenarios=given.scenarios[:runs], feeds=given.feeds[:runs])

    def _compare_device(
        self, graph: GraphOutcome, parity: Parity, placed: Placed, scratch: Path
    ) -> None:
        outputs = [] if graph.placement is None else graph.placement.outputs
        if outputs and placed.exact and placed.device is not None:
            side, ep = Side(placed.model, placed.file), self._settings.target.ep
            run = DeviceRun(side, placed.device, placed.exact, outputs, ep)
            with self._stage("device", "comparing the device's outputs"):
                if graph.activations is not None:
                    parity.steps = check_steps(run, placed.floats)
                else:
                    parity.device = check_device(run, scratch, self._budget.slice_time())
        elif not (graph.fault or graph.surprises()):
            parity.missing = "the device was not compared"
            graph.notes.append(f"{parity.missing}: one of the two sides has no outputs")

    def _place(self, graph: GraphOutcome, placed: Placed) -> None:
        with self._stage("place", f"placing on {self._settings.target.ep}'s own runtime"):
            try:
                self._placed(graph, placed)
            except RuntimeFault as fault:
                if fault.kind == "memory":
                    raise OutOfResources(f"placing {placed.file.name}: {fault}") from None
                if fault.kind == "timeout":
                    graph.notes.append(f"placement did not finish: {fault}; raise --budget")
                elif fault.kind == "missing":
                    graph.notes.append(f"placement did not run: {fault}")
                else:
                    graph.fault = str(fault)

    def _placed(self, graph: GraphOutcome, placed: Placed) -> None:
        feeds = placed.device.feeds if placed.device else ()
        if not placed.parts:
            graph.placement = self._placed_file(placed.file, feeds)
            return
        each = place_chain(placed.parts, feeds, self._placed_file)
        graph.placement = merged(each)
        for part, placement in zip(graph.parts, each, strict=True):
            part.placement = placement

    def _placed_file(self, file: Path, feeds: Sequence[Feeds]) -> Placement:
        settings = self._settings
        return place(
            file,
            ep=settings.target.ep,
            options=settings.target.options,
            python=settings.runtime,
            time_limit=self._budget.left(),
            feeds=feeds,
        )
