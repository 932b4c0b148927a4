"""The proof of a result: compared with its original, and placed on the real runtime.

Where the whole is too much for the budget, or for the memory that is free, a slice of the model
stands in, and the report says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from rewriter.audit.profile import layer_of, profile
from rewriter.budget import Budget
from rewriter.chain import require_equal
from rewriter.cost import Cost, estimate, free_gb
from rewriter.errors import BadInput, OutOfResources, RuntimeFault
from rewriter.outcome import GraphOutcome, Parity
from rewriter.parity.domains import Array
from rewriter.parity.feeds import Feeds, Scenario
from rewriter.parity.model import ModelParity, check_model
from rewriter.parity.outputs import OutputParity
from rewriter.parity.settings import EXACT_TEXT
from rewriter.parity.sites import check_sites
from rewriter.parity.trial import Side, Trial, run_as_is, trial
from rewriter.parity.widen import NotWidenable, half_of, widened
from rewriter.passes.static_cache import fix_phase
from rewriter.phases import Phase
from rewriter.placing import Placed, Placing
from rewriter.runtime.versions import installed
from rewriter.settings import LEVELS, Settings
from rewriter.slices import alike
from rewriter.stages import Stages


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a graph with quantized activations is proven with.

    Attributes:
        floats: the file before they were quantized, which is compared with the original.
        feeds: what the device runs on: prompts with caches as they are then.
    """

    floats: Path
    feeds: tuple[Feeds, ...]


class Proof:
    """Compares and places one result.

    Args:
        settings: what was asked.
        phase: which graph it is.
        stages: of the run.
        read: reads a model file, for the original once more.
    """

    def __init__(
        self, settings: Settings, phase: Phase, stages: Stages, read: Callable[[Path], ir.Model]
    ) -> None:
        self._phase = phase
        self._settings = settings
        self._stage = stages
        self._read = read
        self._budget = Budget(settings)
        self._placing = Placing(settings, stages, self._budget)

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
        asked = "--compile" if self._settings.compile else "--parity device" if level == 3 else ""
        if asked and (why_not := self._placing.unplaceable()):
            raise BadInput(f"{asked} needs the target's runtime: {why_not}")

    def prove(
        self,
        graph: GraphOutcome,
        model: ir.Model,
        written: Path,
        windows: Mapping[str, int],
        parts: Sequence[Path] = (),
        calibrated: Calibrated | None = None,
    ) -> None:
        """Compare and place a result, as far as was asked and can be done here.

        Args:
            graph: gets parity, placement and notes.
            model: the result, as it was written.
            written: its file.
            windows: rows of the caches that hold a window, by input.
            parts: the files that stand for it, in the order they run, where it was split.
            calibrated: where its activations are quantized: then the file before is compared with
                the original, and the device with ONNX Runtime's CPU on the quantized one.

        Raises:
            BadInput: what was asked cannot be proven here.
            OutOfResources: memory ran out.
            RewriteError: the parts do not compute what the whole does.
        """
        level = LEVELS.index(self._settings.parity)
        self._budget.begin()
        given = trial(model, self._settings.seed, windows=windows) if level >= 2 else None
        with tempfile.TemporaryDirectory(prefix="rewrite-") as name:
            scratch = Path(name)
            same = calibrated.floats if calibrated is not None else written
            exact = self._compare(graph, given, same, scratch) if level >= 1 else []
            if parts and given is not None:
                self._compare_parts(graph, given, written, parts)
            if level < 3:  # what only a device is compared with; caches of a real size are large
                given, exact = None, []
            whole = Placed(written, model, given, exact, parts)
            if calibrated is not None and given is not None:
                whole = self._quantized(whole, given, calibrated, scratch)
            if self._settings.place:
                self._placing.prove(graph, whole, scratch)

    def _quantized(
        self, whole: Placed, given: Trial, calibrated: Calibrated, folder: Path
    ) -> Placed:
        """The same with what a device is fed, and what ONNX Runtime's CPU makes of it."""
        full = [Scenario(self._settings.seed, 0)] * len(calibrated.feeds)
        given = replace(given, scenarios=tuple(full), feeds=calibrated.feeds)
        with self._stage("exact", "computing the quantized graph on ONNX Runtime's CPU"):
            exact, floats = (
                run_as_is(
                    Side(ir.load(file), file), given, folder / "exact.onnx", self._budget.left()
                )
                for file in (whole.file, calibrated.floats)
            )
        return replace(whole, device=given, exact=exact, floats=floats)

    def _compare(
        self, graph: GraphOutcome, given: Trial | None, written: Path, folder: Path
    ) -> list[dict[str, Array]]:
        settings = self._settings
        parity = graph.parity = Parity()
        with self._stage("sites", "comparing sites on ONNX Runtime's CPU"):
            parity.sites = check_sites(
                graph.report.fired, folder, settings.seed, time_limit=self._budget.left()
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
            found = check_model(*sides, given, folder, self._budget.left())
            if self._settings.drawn and graph.parity is not None:
                graph.parity.inner = self._inner(*sides, given, folder)
            return found
        fix_phase(original, self._phase)  # a slice has inputs whose shapes are inferred
        pair = alike(original, result)
        if pair is None:
            return _uncompared(given, f"did not run: {why}, and there is no slice of it"), []
        graph.notes.append(f"compared was {pair[0]}: {why}")
        files = (pair[0].save(folder / "before.onnx"), pair[1].save(folder / "after.onnx"))
        sides = Side(ir.load(files[0]), files[0]), Side(ir.load(files[1]), files[1])
        given = given.of_slice(sides[0].model, pair[0].inner, self._settings.seed)
        parity, _ = check_model(*sides, given, folder, self._budget.slice_time())
        return replace(parity, part=(pair[0].nodes, pair[0].of)), []

    def _inner(
        self, original: Side, result: Side, given: Trial, folder: Path
    ) -> tuple[OutputParity, ...]:
        """Values over the depth of a model whose outputs do not show its layers."""
        if any(layer_of(value.name or "") is not None for value in result.model.graph.outputs):
            return ()
        inside = folder / "inner"
        inside.mkdir()
        try:
            return profile(original, result, given, inside, self._budget.left())
        except RuntimeFault:  # a plot is no reason to stop; what failed has been said of the whole
            return ()

    def _too_large(self, original: ir.Model, result: ir.Model) -> str:
        """Why two models cannot be compared whole; empty if they can."""
        costs = _as_compared(original), _as_compared(result)
        free, needed = free_gb(), max(cost.session_gb() for cost in costs)
        if needed > free:
            return f"the whole would take about {needed:.1f} GB of memory, and {free:.1f} are free"
        minutes = max(cost.cpu_minutes() for cost in costs)
        if minutes * 60 > self._budget.left():
            return f"the whole would take about {minutes:.1g} minutes, more than are left"
        return ""

    def _compare_parts(
        self, graph: GraphOutcome, given: Trial, written: Path, parts: Sequence[Path]
    ) -> None:
        """Parts compute what the whole does, where there is time to see it."""
        if why := self._too_large(ir.load(written), ir.load(written)):
            graph.notes.append(f"the parts were not compared with the whole: {why}")
            return
        with self._stage("parts", "comparing the parts with the whole"):
            require_equal(written, parts, given.feeds[:1], self._budget.left())


def _as_compared(model: ir.Model) -> Cost:
    """The cost of a model as it is compared: halves take twice the room in float32."""
    try:
        return estimate(model if half_of(model) is None else widened(model))
    except NotWidenable:
        return estimate(model)


def _uncompared(given: Trial, what: str) -> ModelParity:
    scenarios = tuple(str(s) for s in given.scenarios)
    return ModelParity((), False, scenarios, EXACT_TEXT, None, f"the comparison {what}")
