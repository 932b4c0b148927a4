"""From a model file to a folder: read, fix dims, lower, write, compare, place."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from capabilities import Target
from rewriter.cost import Cost, estimate
from rewriter.errors import BadInput, OutOfResources, RuntimeFault
from rewriter.lowering import lower
from rewriter.outcome import GraphOutcome, Outcome, Parity
from rewriter.output import Staging, staging
from rewriter.parity.domains import Array
from rewriter.parity.model import ModelParity, Trial, check_device, check_model, trial
from rewriter.parity.settings import EXACT_TEXT
from rewriter.parity.sites import check_sites
from rewriter.passes.fix_dims import fix_dims
from rewriter.placement import Placement, place
from rewriter.runtime.versions import installed

LEVELS = ("none", "sites", "model", "device")
"""Levels of parity, each with the ones before it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command was asked to do.

    Attributes:
        model: the file to read.
        target: what to rewrite it for.
        output: the folder to write; ``None`` writes nothing.
        overwrite: replace a folder that holds something.
        dims: values of dims.
        disable: rules not to use.
        allow_stuck: keep what could be done.
        parity: one of :data:`LEVELS`.
        place: ask the real runtime where nodes run.
        runtime: an interpreter whose runtime is asked instead of this one's.
        budget: minutes that comparing and placing may take together.
        seed: of all random inputs.
    """

    model: Path
    target: Target
    output: Path | None
    overwrite: bool = False
    dims: Mapping[str, int] = field(default_factory=dict)
    disable: Sequence[str] = ()
    allow_stuck: bool = False
    parity: str = "model"
    place: bool = True
    runtime: Path | None = None
    budget: float = 10.0
    seed: int = 0


class Pipeline:
    """One run. ``say`` is told what begins; ``read`` reads a model file."""

    def __init__(
        self,
        settings: Settings,
        *,
        read: Callable[[Path], ir.Model],
        companions: Callable[[Path], list[Path]],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._read = read
        self._companions = companions
        self._say = say
        self._deadline = 0.0
        self.outcome = Outcome(str(settings.model), settings.target)

    def run(self) -> Outcome:
        """Do everything; the output folder appears only if nothing speaks against it.

        Raises:
            RewriteError: with its exit code; then nothing was written.
        """
        settings = self._settings
        self._require_runtimes()
        if settings.output is None:
            with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
                self._steps(Staging(Path(scratch), Path(scratch)))
            return self.outcome
        output, overwrite = settings.output, settings.overwrite
        with staging(output, overwrite=overwrite, model=settings.model) as stage:
            self._steps(stage)
            graph = self.outcome.graphs[0]
            kept = not graph.report.stuck or settings.allow_stuck
            if kept and (graph.parity is None or graph.parity.ok):
                stage.copy(self._companions(settings.model))
                stage.publish()
                self.outcome.output = str(output)
        return self.outcome

    def _steps(self, stage: Staging) -> None:
        settings = self._settings
        with self._stage("read", f"reading {settings.model}"):
            model = self._read(settings.model)
            self.outcome.weights_before = weight_bytes(model)
        with self._stage("lower", f"rewriting for {settings.target}"):
            dims = fix_dims(model, settings.dims)
            if settings.target.static_only:
                dims.require_fixed(settings.target.ep)
            report = lower(model, settings.target, disable=settings.disable, allow_stuck=True)
        graph = GraphOutcome("model", "model.onnx", report, dims, allow_stuck=settings.allow_stuck)
        graph.notes += report.notes
        self.outcome.graphs.append(graph)
        self.outcome.weights_after = weight_bytes(model)
        if report.stuck and not settings.allow_stuck:
            return
        with self._stage("write", "writing"):
            written = stage.write(model, graph.file)
        self._prove(graph, model, written)

    def _require_runtimes(self) -> None:
        """Find out before the work that what was asked for cannot be proven here."""
        level = LEVELS.index(self._settings.parity)
        if level >= 1 and installed("ort-cpu") is None:
            raise BadInput(
                "parity needs ONNX Runtime: pip install 'ep-rewriter[ort]', or give --parity none"
            )
        if level == 3 and (why_not := self._unplaceable()):
            raise BadInput(f"--parity device needs the target's runtime: {why_not}")

    # -- proof -----------------------------------------------------------------------------------

    def _prove(self, graph: GraphOutcome, model: ir.Model, written: Path) -> None:
        level = LEVELS.index(self._settings.parity)
        self._deadline = time.perf_counter() + self._settings.budget * 60
        given = trial(model, self._settings.seed) if level >= 2 else None
        device = given if level == 3 else None
        why_not = self._unplaceable() or self._too_slow(estimate(model), device)
        if device is not None and why_not:
            raise BadInput(f"--parity device needs the target's runtime: {why_not}")
        exact: list[dict[str, Array]] = []
        if level >= 1:
            with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
                exact = self._compare(graph, given, written, Path(scratch))
        if not self._settings.place:
            return
        if why_not:
            graph.notes.append(f"placement did not run: {why_not}")
            return
        self._place(graph, written, device)
        if device is not None and graph.parity is not None:
            self._compare_device(graph, graph.parity, model, exact, device)

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
            original = self._read(settings.model)
            try:
                parity.model, exact = check_model(
                    original, settings.model, written, given, folder, self._left()
                )
            except RuntimeFault as fault:
                if fault.kind == "memory":
                    raise OutOfResources(f"comparing {written.name}: {fault}") from None
                scenarios = tuple(str(s) for s in given.scenarios)
                note = f"the comparison did not finish: {fault}"
                parity.model = ModelParity((), False, scenarios, EXACT_TEXT, None, note)
                return []
        return exact

    def _compare_device(
        self,
        graph: GraphOutcome,
        parity: Parity,
        model: ir.Model,
        exact: list[dict[str, Array]],
        device: Trial,
    ) -> None:
        outputs = [] if graph.placement is None else graph.placement.outputs
        if outputs and exact:
            ep = self._settings.target.ep
            parity.device = check_device(model, exact, outputs, device, ep)
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

    def _too_slow(self, cost: Cost, device: Trial | None) -> str:
        """Whether the emulator would take longer than there is; empty if not."""
        minutes = cost.minutes(runs=len(device.feeds) if device else 0)
        if self._settings.target.ep != "qnn" or minutes <= self._settings.budget:
            return ""
        return (
            f"it would take about {minutes:.0f} minutes in the emulator, more than "
            f"--budget {self._settings.budget:g}"
        )

    @contextmanager
    def _stage(self, name: str, words: str) -> Generator[None, None, None]:
        self._say(words)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.outcome.seconds[name] = round(time.perf_counter() - began, 3)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of a model."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )
