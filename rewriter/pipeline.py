"""From a model file to a folder: read, fix dims, lower, write, prove."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir

from rewriter.lowering import lower
from rewriter.outcome import GraphOutcome, Outcome
from rewriter.output import Staging, staging
from rewriter.passes import dim_fit
from rewriter.passes.fix_dims import fix_dims
from rewriter.proof import Proof
from rewriter.settings import Settings
from rewriter.stages import Stages


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
        self.outcome = Outcome(str(settings.model), settings.target)
        self._stage = Stages(say, self.outcome.seconds)
        self._proof = Proof(settings, self._stage, read)

    def run(self) -> Outcome:
        """Do everything; the output folder appears only if nothing speaks against it.

        Raises:
            RewriteError: with its exit code; then nothing was written.
        """
        settings = self._settings
        self._proof.require_runtimes()
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
            windows = dict(dim_fit.windows(model).values())
            report = lower(model, settings.target, disable=settings.disable, allow_stuck=True)
        graph = GraphOutcome("model", "model.onnx", report, dims, allow_stuck=settings.allow_stuck)
        graph.notes += report.notes
        self.outcome.graphs.append(graph)
        self.outcome.weights_after = weight_bytes(model)
        if report.stuck and not settings.allow_stuck:
            return
        with self._stage("write", "writing"):
            written = stage.write(model, graph.file)
        self._proof.prove(graph, model, written, windows)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of a model."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )
