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
from rewriter.parity.model import Trial, check_device, check_model, trial
from rewriter.parity.sites import check_sites
from rewriter.passes.fix_dims import Dims, fix_dims
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
        self.outcome = Outcome(str(settings.model), settings.target)

    def run(self) -> Outcome:
        """Do everything; the output folder appears only if nothing speaks against it.

        Raises:
            RewriteError: with its exit code; then nothing was written.
        """
        settings = self._settings
        if settings.output is None:
            with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
                self._steps(Staging(Path(scratch), Path(scratch)))
            return self.outcome
        with staging(settings.output, overwrite=settings.overwrite) as stage:
            self._steps(stage)
            graph = self.outcome.graphs[0]
            kept = not graph.report.stuck or settings.allow_stuck
            if kept and (graph.parity is None or graph.parity.ok):
                stage.copy(self._companions(settings.model))
                stage.publish()
                self.outcome.output = str(settings.output)
        return self.outcome

    def _steps(self, stage: Staging) -> None:
        settings = self._settings
        with self._stage("read", f"reading {settings.model}"):
            model = self._read(settings.model)
            self.outcome.weights_before = weight_bytes(model)
        with self._stage("lower", f"rewriting for {settings.target}"):
            dims = fix_dims(model, settings.dims)
            self._refuse_free(dims)
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

    def _refuse_free(self, dims: Dims) -> None:
        if not dims.free or not self._settings.target.static_only:
            return
        lines = [f"  {d.name}: {d.where}; {d.meaning}" for d in dims.free]
        words = [f"--dim {d.name}={d.proposal}" for d in dims.free]
        given = [f"--dim {k}={v}" for k, v in self._settings.dims.items()]
        raise BadInput(
            f"{self._settings.target.ep} runs fixed shapes only, and these dims are free:\n"
            + "\n".join(lines)
            + f"\nfor example: rewrite {self._settings.model} --ep {self._settings.target} "
            + " ".join([*given, *words])
        )

    # -- proof -----------------------------------------------------------------------------------

    def _prove(self, graph: GraphOutcome, model: ir.Model, written: Path) -> None:
        level = LEVELS.index(self._settings.parity)
        cost = estimate(model)
        given = trial(model, self._settings.seed) if level >= 2 else None
        exact: list[dict[str, Array]] = []
        with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
            if level >= 1:
                exact = self._compare(graph, given, written, Path(scratch))
        if self._settings.place or level == 3:
            device = given if level == 3 else None
            self._place(graph, written, cost, device)
            if device is not None and graph.placement is not None and graph.parity is not None:
                graph.parity.device = check_device(model, exact, graph.placement.outputs, device)

    def _compare(
        self, graph: GraphOutcome, given: Trial | None, written: Path, folder: Path
    ) -> list[dict[str, Array]]:
        if installed("ort-cpu") is None:
            raise BadInput(
                "parity needs ONNX Runtime: pip install 'ep-rewriter[ort]', or give --parity none"
            )
        limit = self._settings.budget * 60
        parity = graph.parity = Parity()
        with self._stage("sites", "comparing sites on ONNX Runtime's CPU"):
            parity.sites = check_sites(
                graph.report.fired, folder, self._settings.seed, time_limit=limit
            )
        if given is None:
            return []
        with self._stage("model", "comparing the whole model on ONNX Runtime's CPU"):
            parity.model, exact = check_model(
                self._read(self._settings.model),
                self._settings.model,
                written,
                given,
                folder,
                limit,
            )
        return exact

    def _place(self, graph: GraphOutcome, written: Path, cost: Cost, device: Trial | None) -> None:
        settings, target = self._settings, self._settings.target
        why_not = self._unplaceable()
        minutes = cost.minutes(runs=len(device.feeds) if device else 0)
        if not why_not and target.ep == "qnn" and minutes > settings.budget:
            why_not = (
                f"it would take about {minutes:.0f} minutes in the emulator, more than "
                f"--budget {settings.budget:g}"
            )
        if why_not:
            graph.notes.append(f"placement did not run: {why_not}")
            if device is not None:
                raise BadInput(f"--parity device needs the runtime: {why_not}")
            return
        with self._stage("place", f"placing on {target.ep}'s own runtime"):
            try:
                graph.placement = self._placed(written, device)
            except RuntimeFault as fault:
                if fault.kind == "memory":
                    raise OutOfResources(f"placing {written.name}: {fault}") from None
                if fault.kind == "timeout":
                    graph.notes.append(f"placement did not finish: {fault}; raise --budget")
                else:
                    graph.fault = str(fault)

    def _placed(self, written: Path, device: Trial | None) -> Placement:
        settings = self._settings
        return place(
            written,
            ep=settings.target.ep,
            options=settings.target.options,
            python=settings.runtime,
            time_limit=settings.budget * 60,
            feeds=device.feeds if device else (),
        )

    def _unplaceable(self) -> str:
        """Why the runtime cannot be asked; empty if it can."""
        target = self._settings.target
        if target.ep == "onnx-standard":
            return "onnx-standard is no runtime"
        found = installed(target.ep, self._settings.runtime)
        if found is None:
            return f"no runtime of {target.ep} is installed (pip install 'ep-rewriter[qnn]')"
        if found != target.version:
            return (
                f"{target.ep} {found} is installed, not {target.version} (--runtime PYTHON "
                "names an environment that has it)"
            )
        return ""

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
