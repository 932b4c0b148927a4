"""The proof of a result: compared with its original, and placed on the real runtime.

All steps share the budget. Where the whole is too much for it, or for the memory that is free, a
slice of the model stands in, and the report says so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from rewriter.cost import Cost, estimate, free_gb
from rewriter.errors import BadInput, OutOfResources, RuntimeFault
from rewriter.outcome import GraphOutcome, Parity
from rewriter.output import disk
from rewriter.parity.device import DeviceRun, check_device
from rewriter.parity.domains import Array
from rewriter.parity.model import ModelParity, check_model
from rewriter.parity.settings import EXACT_TEXT
from rewriter.parity.sites import check_sites
from rewriter.parity.trial import Side, Trial, exact_outputs, trial
from rewriter.parity.widen import NotWidenable, half_of, widened
from rewriter.passes.fix_dims import fix_dims
from rewriter.placement import Placement, emulated, place
from rewriter.runtime.versions import installed
from rewriter.settings import LEVELS, Settings
from rewriter.slices import Slice, alike, distinct
from rewriter.stages import Stages

_SLICE_SECONDS = 60
_SLOWER = 3
"""How much slower than estimated a run in the emulator may be, before it is stopped."""


class Proof:
    """Compares and places one result.

    Args:
        settings: what was asked.
        stages: of the run.
        read: reads a model file, for the original once more.
    """

    def __init__(
        self, settings: Settings, stages: Stages, read: Callable[[Path], ir.Model]
    ) -> None:
        self._settings = settings
        self._stage = stages
        self._read = read
        self._deadline = 0.0

    def require_runtimes(self) -> None:
        """Find out before the work that what was asked for cannot be proven here.

        Raises:
            BadInput: a runtime is missing.
        """
        level = LEVELS.index(self._settings.parity)
        if level >= 1 and installed("ort-cpu") is None:
            raise BadInput(
                "parity needs ONNX Runtime: pip install 'ep-rewriter[ort]', or give --parity none"
            )
        if level == 3 and (why_not := self._unplaceable()):
            raise BadInput(f"--parity device needs the target's runtime: {why_not}")

    def prove(
        self, graph: GraphOutcome, model: ir.Model, written: Path, windows: Mapping[str, int]
    ) -> None:
        """Compare and place a result, as far as was asked and can be done here.

        Args:
            graph: gets parity, placement and notes.
            model: the result, as it was written.
            written: its file.
            windows: rows of the caches that hold a window, by input.

        Raises:
            BadInput: what was asked cannot be proven here.
            OutOfResources: memory ran out.
        """
        level = LEVELS.index(self._settings.parity)
        self._deadline = time.perf_counter() + self._settings.budget * 60
        given = trial(model, self._settings.seed, windows=windows) if level >= 2 else None
        with tempfile.TemporaryDirectory(prefix="rewrite-") as name:
            scratch = Path(name)
            exact = self._compare(graph, given, written, scratch) if level >= 1 else []
            if level < 3:  # what only a device is compared with; caches of a real size are large
                given, exact = None, []
            if self._settings.place:
                whole = _Placed(written, model, given, exact)
                self._prove_placement(graph, whole, scratch)

    def _prove_placement(self, graph: GraphOutcome, whole: _Placed, scratch: Path) -> None:
        device = whole.device is not None
        if why_not := self._unplaceable():
            if device:
                raise BadInput(f"--parity device needs the target's runtime: {why_not}")
            graph.notes.append(f"placement did not run: {why_not}")
            return
        placed: _Placed | None = whole
        if why_not := self._too_much(estimate(whole.model), whole.runs, self._left()):
            placed = self._part(graph, whole, scratch, why_not)
        if placed is not None:
            self._place(graph, placed.file, placed.device)
        if device and graph.parity is not None:
            self._compare_device(graph, graph.parity, placed or whole, scratch)

    def _part(self, graph: GraphOutcome, whole: _Placed, scratch: Path, why: str) -> _Placed | None:
        """A slice to place instead of the whole; nothing if that is too much as well."""
        part = distinct(ir.load(whole.file))
        if part is None or self._too_much(estimate(part.model), whole.runs, self._slice_time()):
            graph.notes.append(f"placement did not run: it {why}; no slice of it is small enough")
            return None
        graph.notes.append(f"placed was {part}: the whole {why}")
        graph.part = part
        file = _saved(part, scratch / "slice.onnx")
        if whole.device is None:
            return _Placed(file, part.model, None, [])
        side = Side(ir.load(file), file)
        given = self._trial(side.model, part, whole.device)
        device = self._affordable(estimate(part.model), given)
        if (runs := len(device.feeds)) < len(given.feeds):
            graph.notes.append(
                f"the slice runs on {runs} of {len(given.feeds)} inputs: time is short"
            )
        with self._stage("exact", "computing the slice on ONNX Runtime's CPU"):
            exact = exact_outputs(side, device, scratch / "exact.onnx", self._slice_time())
        return _Placed(file, part.model, device, exact)

    def _trial(self, model: ir.Model, part: Slice, whole: Trial) -> Trial:
        given = trial(model, self._settings.seed, windows=whole.sizes.windows)
        return replace(given, inner=part.inner)

    def _affordable(self, cost: Cost, given: Trial) -> Trial:
        """As many of the runs as there is time for on a machine that does other things too."""
        runs = len(given.feeds)
        while runs > 1 and self._too_much(cost, runs, self._left() / _SLOWER):
            runs -= 1
        return replace(given, scenarios=given.scenarios[:runs], feeds=given.feeds[:runs])

    def _slice_time(self) -> float:
        """Seconds for a slice: a minute even where less is left, or nothing would be seen."""
        self._deadline = max(self._deadline, time.perf_counter() + _SLICE_SECONDS)
        return self._left()

    def _left(self) -> float:
        """Seconds of the budget that are left; a little, so that there is something to stop."""
        return max(self._deadline - time.perf_counter(), 0.001)

    def _compare(
        self, graph: GraphOutcome, given: Trial | None, written: Path, folder: Path
    ) -> list[dict[str, Array]]:
        settings = self._settings
        parity = graph.parity = Parity()
        with self._stage("sites", "comparing sites on ONNX Runtime's CPU"):
            parity.sites = check_sites(
                graph.report.fired, folder, settings.seed, time_limit=self._left()
            )
        if given is None:
            return []
        with self._stage("model", "comparing the whole model on ONNX Runtime's CPU"):
            try:
                parity.model, exact = self._compare_model(graph, given, written, folder)
            except RuntimeFault as fault:
                if fault.kind == "memory":
                    raise OutOfResources(f"comparing {written.name}: {fault}") from None
                parity.model, exact = _uncompared(given, f"did not finish: {fault}"), []
        return exact

    def _compare_model(
        self, graph: GraphOutcome, given: Trial, written: Path, folder: Path
    ) -> tuple[ModelParity, list[dict[str, Array]]]:
        """Compare the whole model, or a slice of it where that is too much for this machine."""
        original, result = self._read(self._settings.model), ir.load(written)
        why = self._too_large(original, result)
        if not why:
            sides = Side(original, self._settings.model), Side(result, written)
            return check_model(*sides, given, folder, self._left())
        fix_dims(original, self._settings.dims)  # a slice has inputs whose shapes are inferred
        pair = alike(original, result)
        if pair is None:
            return _uncompared(given, f"did not run: {why}, and there is no slice of it"), []
        graph.notes.append(f"compared was {pair[0]}: {why}")
        files = (_saved(pair[0], folder / "before.onnx"), _saved(pair[1], folder / "after.onnx"))
        sides = Side(ir.load(files[0]), files[0]), Side(ir.load(files[1]), files[1])
        given = self._trial(sides[0].model, pair[0], given)
        parity, _ = check_model(*sides, given, folder, self._slice_time())
        return replace(parity, part=(pair[0].nodes, pair[0].of)), []

    def _too_large(self, original: ir.Model, result: ir.Model) -> str:
        """Why two models cannot be compared whole; empty if they can."""
        costs = _as_compared(original), _as_compared(result)
        free, needed = free_gb(), max(cost.session_gb() for cost in costs)
        if needed > free:
            return f"the whole would take about {needed:.1f} GB of memory, and {free:.1f} are free"
        minutes = max(cost.cpu_minutes() for cost in costs)
        if minutes * 60 > self._left():
            return f"the whole would take about {minutes:.1g} minutes, more than are left"
        return ""

    def _compare_device(
        self, graph: GraphOutcome, parity: Parity, placed: _Placed, scratch: Path
    ) -> None:
        outputs = [] if graph.placement is None else graph.placement.outputs
        if outputs and placed.exact and placed.device is not None:
            side, ep = Side(placed.model, placed.file), self._settings.target.ep
            run = DeviceRun(side, placed.device, placed.exact, outputs, ep)
            with self._stage("device", "comparing the device's outputs"):
                parity.device = check_device(run, scratch, self._slice_time())
        elif not (graph.fault or graph.surprises()):
            parity.missing = "the device was not compared"
            graph.notes.append(f"{parity.missing}: one of the two sides has no outputs")

    def _place(self, graph: GraphOutcome, written: Path, device: Trial | None) -> None:
        with self._stage("place", f"placing on {self._settings.target.ep}'s own runtime"):
            try:
                graph.placement = self._placed(written, device)
            except RuntimeFault as fault:
                if fault.kind == "memory":
                    raise OutOfResources(f"placing {written.name}: {fault}") from None
                if fault.kind == "timeout":
                    graph.notes.append(f"placement did not finish: {fault}; raise --budget")
                elif fault.kind == "missing":
                    graph.notes.append(f"placement did not run: {fault}")
                else:
                    graph.fault = str(fault)

    def _placed(self, written: Path, device: Trial | None) -> Placement:
        settings = self._settings
        return place(
            written,
            ep=settings.target.ep,
            options=settings.target.options,
            python=settings.runtime,
            time_limit=self._left(),
            feeds=device.feeds if device else (),
        )

    def _unplaceable(self) -> str:
        """Why the runtime cannot be asked; empty if it can."""
        target, python = self._settings.target, self._settings.runtime
        if target.ep == "onnx-standard":
            return "onnx-standard is no runtime"
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

    def _too_much(self, cost: Cost, runs: int, seconds: float) -> str:
        """Why the emulator would not finish, or not fit; empty if it would."""
        if self._settings.target.ep != "qnn" or not emulated():
            return ""
        minutes, needed, free = cost.minutes(runs), cost.emulator_gb(), free_gb()
        if minutes * 60 > seconds:
            return (
                f"would take about {minutes:.2g} minutes in the emulator, more than is left of "
                f"--budget {self._settings.budget:g}"
            )
        if needed > free:
            return f"would take about {needed:.1f} GB in the emulator, and {free:.1f} are free"
        return ""


@dataclass(frozen=True, slots=True)
class _Placed:
    """What is placed: the whole result, or a slice of it.

    Attributes:
        file: the model.
        model: its graph.
        device: what to feed, where the device's outputs are compared.
        exact: what ONNX Runtime's CPU computes of that.
    """

    file: Path
    model: ir.Model
    device: Trial | None
    exact: Sequence[dict[str, Array]]

    @property
    def runs(self) -> int:
        return len(self.device.feeds) if self.device else 0


def _as_compared(model: ir.Model) -> Cost:
    """The cost of a model as it is compared: halves take twice the room in float32."""
    try:
        return estimate(model if half_of(model) is None else widened(model))
    except NotWidenable:
        return estimate(model)


def _saved(part: Slice, path: Path) -> Path:
    """Write a slice with its own copy of the weights it has."""
    with disk(path.parent):
        ir.save(part.model, path, external_data=f"{path.name}.data")
    return path


def _uncompared(given: Trial, what: str) -> ModelParity:
    scenarios = tuple(str(s) for s in given.scenarios)
    return ModelParity((), False, scenarios, EXACT_TEXT, None, f"the comparison {what}")
