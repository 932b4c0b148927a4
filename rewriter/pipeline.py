"""From a model to a folder: read, fix dims, lower, write, prove; once for each graph it takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from rewriter.facts import constant
from rewriter.lowering import lower
from rewriter.outcome import GraphOutcome, Outcome
from rewriter.output import Staging, Told, staging
from rewriter.passes import dim_fit
from rewriter.passes.fix_dims import fix_dims
from rewriter.phases import Phase, phases
from rewriter.proof import Proof
from rewriter.quantization import quantized_weights
from rewriter.settings import LEVELS, Settings
from rewriter.source import Source
from rewriter.stages import Stages


def _untracked(total: int) -> AbstractContextManager[Told]:
    del total
    return nullcontext(lambda *_: None)


class Pipeline:
    """One run.

    Args:
        settings: what to do.
        source: what to do it to.
        say: is told what begins.
        track: shows how the writing of so many bytes goes on; what it gives is told the name and
            the bytes of each weight.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        *,
        say: Callable[[str], None],
        track: Callable[[int], AbstractContextManager[Told]] = _untracked,
    ) -> None:
        self._settings = settings
        self._source = source
        self._track = track
        self.outcome = Outcome(str(settings.model), settings.target)
        self._stage = Stages(say, self.outcome.seconds)

    def run(self) -> Outcome:
        """Do everything; the output folder appears only if nothing speaks against it.

        Raises:
            RewriteError: with its exit code; then nothing was written.
        """
        settings = self._settings
        self._proof(settings).require_runtimes()
        if settings.output is None:
            with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
                self._graphs(Staging(Path(scratch), Path(scratch)))
            return self.outcome
        output, overwrite = settings.output, settings.overwrite
        with staging(output, overwrite=overwrite, model=settings.model) as stage:
            self._graphs(stage)
            if all(graph.kept for graph in self.outcome.graphs):
                companions = self._source.companions(stage.folder)
                stage.copy(companions.files)
                self.outcome.graphs[0].notes += companions.notes
                stage.publish()
                self.outcome.output = str(output)
        return self.outcome

    def _graphs(self, stage: Staging) -> None:
        settings = self._settings
        with self._stage("read", f"reading {settings.model}"):
            model = self._source.read(settings.max_seq_len or None)
            self.outcome.weights_before = weight_bytes(model)
            self._source.companions(None)  # what is wrong with it is found before the work
            found, notes = phases(settings, model, built=self._source.built)
        with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
            original, began = self._original(model, Path(scratch)), time.perf_counter()
            first: Path | None = None
            for phase in found:
                written = self._graph(stage, phase, original, first, began)
                first = first or written
                if written is None:
                    break
        self.outcome.graphs[0].notes += notes
        if first is not None:
            self.outcome.weights += self._source.kinds()

    def _original(self, model: ir.Model, folder: Path) -> Path:
        """The file that results are compared with; written if the model was built."""
        if not self._source.built or LEVELS.index(self._settings.parity) < 2:
            return self._settings.model
        path = folder / "portable.onnx"
        with self._stage("portable", "writing the portable graph to compare with"):
            return Staging(folder, folder).write(model, path.name)[0]

    def _graph(
        self, stage: Staging, phase: Phase, original: Path, first: Path | None, began: float
    ) -> Path | None:
        """One graph; its file, if nothing in it is stuck."""
        settings = self._settings
        label = "" if phase.name == "model" else f"{phase.name}: "
        with self._stage("lower", f"{label}rewriting for {settings.target}"):
            model = self._source.read(settings.max_seq_len or None)
            dims = fix_dims(model, phase.dims)
            if settings.target.static_only:
                dims.require_fixed(settings.target.ep)
            windows = dict(dim_fit.windows(model).values())
            report = lower(model, settings.target, disable=settings.disable, allow_stuck=True)
        accept = settings.allow_stuck
        graph = GraphOutcome(phase.name, phase.file, report, dims, allow_stuck=accept)
        graph.notes += report.notes
        graph.quantized = quantized_weights(model)
        self.outcome.graphs.append(graph)
        self.outcome.weights_after += weight_bytes(model)
        if report.stuck and not accept:
            return None
        with self._stage("write", f"{label}writing"):
            with self._track(weight_bytes(model)) as told:
                written, shared = stage.write(model, graph.file, first, told)
            self.outcome.weights_after -= shared
        left = settings.budget - (time.perf_counter() - began) / 60
        asked = replace(settings, model=original, dims=phase.dims, budget=max(left, 1e-4))
        self._proof(asked).prove(graph, model, written, windows)
        return written

    def _proof(self, settings: Settings) -> Proof:
        return Proof(settings, self._stage, self._reread)

    def _reread(self, original: Path) -> ir.Model:
        return ir.load(original) if self._source.built else self._source.read(None)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers and Constant nodes of a model."""
    stored = [v.const_value for graph in model.graphs() for v in graph.initializers.values()]
    nodes = (node for graph in model.graphs() for node in graph if node.op_type == "Constant")
    stored += [constant(node.outputs[0]) for node in nodes]
    return sum(tensor.nbytes for tensor in stored if tensor is not None)
