"""The graphs that come of one file of a model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from rewriter.calibrate_step import evaluate_graph, quantize_graph
from rewriter.compile_step import compile_files
from rewriter.cost import weight_bytes
from rewriter.lowering import lower
from rewriter.node_states import node_states
from rewriter.outcome import Exit, GraphOutcome, Outcome, PartOutcome
from rewriter.output import Staging, Told
from rewriter.parity.trial import trial
from rewriter.passes import dim_fit
from rewriter.passes.static_cache import fix_phase
from rewriter.phases import Phase
from rewriter.proof import Proof
from rewriter.quantization import quantized_weights
from rewriter.quantize.measure import mean_squares
from rewriter.quantize.source import quantized_source
from rewriter.quantize.weights import Importance
from rewriter.roles import role_of
from rewriter.settings import LEVELS, Settings
from rewriter.source import Source
from rewriter.split import foresee, write_parts
from rewriter.stages import Stages
from rewriter.traffic import traffic


@dataclass(frozen=True, slots=True)
class Run:
    """What all graphs of a run share.

    Attributes:
        settings: what to do.
        stage: says what begins and times it.
        track: shows how the writing of so many bytes goes on.
        outcome: gets what was done.
        written: the graphs so far; those after the first use its weights where they are equal.
    """

    settings: Settings
    stage: Stages
    track: Callable[[int], AbstractContextManager[Told]]
    outcome: Outcome
    written: list[Path] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Made:
    """A graph between being lowered and being proven.

    Attributes:
        model: what was made.
        graph: what is told of it.
        windows: rows that its windowed caches hold, by the name of their present.
        label: of its stages.
    """

    model: ir.Model
    graph: GraphOutcome
    windows: dict[str, int]
    label: str


class Component:
    """One file of a model, from reading it to proving each graph that was made of it.

    Args:
        run: what it is part of.
        source: the file.
    """

    def __init__(self, run: Run, source: Source) -> None:
        self._run = run
        self._source = source
        self._settings = replace(run.settings, model=source.file)

    def graphs(self, stage: Staging, phases: Sequence[Phase]) -> bool:
        """Write and prove a graph for each phase; whether nothing in any of them is stuck."""
        with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
            self._scratch = Path(scratch)
            self._quantize(phases[0])
            original, began = self._original(self._scratch), time.perf_counter()
            for phase in phases:
                if not self._graph(stage, phase, original, began):
                    return False
        self._run.outcome.weights += self._source.kinds()
        return True

    def _quantize(self, phase: Phase) -> None:
        """Let a file with quantized weights take the place of the source, if that was asked."""
        settings = self._settings
        if settings.quantize is None:
            return

        def measure(model: ir.Model, folder: Path) -> Importance:
            fix_phase(model, phase)
            return mean_squares(model, folder, seed=settings.seed)

        with self._run.stage("quantize", f"quantizing weights to {settings.quantize.bits} bits"):
            self._source, errors = quantized_source(
                self._source,
                settings.quantize,
                self._scratch,
                settings.max_seq_len or None,
                measure if settings.quantize.max_error is not None else None,
            )
        self._settings = replace(settings, model=self._source.file)
        self._run.outcome.weight_errors += errors

    def _read(self) -> ir.Model:
        return self._source.read(self._settings.max_seq_len or None)

    def _original(self, folder: Path) -> Path:
        """The file that results are compared with; written if the model was built."""
        if not self._source.built or LEVELS.index(self._settings.parity) < 2:
            return self._source.file
        path = folder / "portable.onnx"
        with self._run.stage("portable", "writing the portable graph to compare with"):
            return Staging(folder, folder).write(self._read(), path.name)[0]

    def _graph(self, stage: Staging, phase: Phase, original: Path, began: float) -> bool:
        """One graph; whether nothing in it is stuck.

        Args:
            stage: where it is written.
            phase: which one.
            original: what it is compared with.
            began: when the budget began to be spent.
        """
        settings, outcome = self._settings, self._run.outcome
        made = self._lowered(phase)
        graph, model = made.graph, made.model
        quantized = None
        if settings.activations and not graph.report.stuck:
            with self._run.stage("calibrate", f"{made.label}calibrating activations"):
                quantized = quantize_graph(model, graph, settings, self._source, self._scratch)
        graph.traffic = traffic(model)
        outcome.graphs.append(graph)
        outcome.weights_after += weight_bytes(model)
        stuck = bool(graph.report.stuck) and not settings.allow_stuck
        if not stuck:
            written, parts = self._written(stage, made)
            left = settings.budget - (time.perf_counter() - began) / 60
            asked = replace(settings, model=original, budget=max(left, 1e-4))
            proof = Proof(asked, phase, self._run.stage, self._reread)
            calibrated = None
            if quantized is not None:
                calibrated = evaluate_graph(quantized, written, graph, settings, self._run.stage)
            proof.prove(graph, model, written, made.windows, parts, calibrated)
            if settings.compile and graph.exit() is Exit.GOOD:
                with self._run.stage("compile", f"{made.label}compiling for {settings.target}"):
                    feeds = trial(model, settings.seed, windows=made.windows).feeds[:1]
                    compile_files(graph, parts or [written], settings, feeds)
        if settings.drawn:
            graph.nodes = node_states(model, settings.target, graph.placement, graph.part)
        return not stuck

    def _lowered(self, phase: Phase) -> _Made:
        """The graph of a phase, rewritten for the target."""
        settings = self._settings
        name = self._source.graph(phase.name)
        label = "" if name == "model" else f"{name}: "
        with self._run.stage("lower", f"{label}rewriting for {settings.target}"):
            model = self._read()
            role, dims = role_of(model), fix_phase(model, phase)
            if settings.target.static_only:
                dims.require_fixed(settings.target.ep)
            asked = self._parts(role)
            if asked and asked != "auto":
                foresee(model, asked)
            windows = dict(dim_fit.windows(model).values())
            report = lower(
                model,
                settings.target,
                disable=settings.disable,
                allow_stuck=True,
                mask_value=settings.mask_value,
            )
        accept = settings.allow_stuck
        graph = GraphOutcome(name, f"{name}.onnx", report, dims, allow_stuck=accept, role=role)
        graph.notes += report.notes
        graph.quantized = quantized_weights(model)
        return _Made(model, graph, windows, label)

    def _written(self, stage: Staging, made: _Made) -> tuple[Path, list[Path]]:
        """The file of a graph, and those of its parts where it is cut into some."""
        run, model = self._run, made.model
        with run.stage("write", f"{made.label}writing"):
            beside = next(iter(run.written), None)
            with run.track(weight_bytes(model)) as told:
                written, shared = stage.write(model, made.graph.file, beside, told)
            run.written.append(written)
            run.outcome.weights_after -= shared
            return written, self._split(made.graph, written)

    def _split(self, graph: GraphOutcome, written: Path) -> list[Path]:
        """Cut a written graph into parts, if that was asked; their files."""
        asked = self._parts(graph.role)
        if not asked:
            return []
        made = write_parts(written, None if asked == "auto" else asked)
        graph.parts = [PartOutcome(part.path.name, part.cut) for part in made]
        return [part.path for part in made]

    def _parts(self, role: str) -> int | Literal["auto"]:
        """How many parts of layers are asked for; of several files the decoder alone is cut."""
        return self._settings.split if not self._source.name or role == "decoder" else 0

    def _reread(self, original: Path) -> ir.Model:
        return ir.load(original) if self._source.built else self._source.read(None)
