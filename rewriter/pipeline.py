"""From a model to a folder: read, fix dims, lower, write, prove; once for each graph it takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import onnx_ir as ir

from rewriter.component import Component, Run
from rewriter.cost import weight_bytes
from rewriter.genai import genai_files
from rewriter.outcome import Outcome
from rewriter.output import Staging, Told, staging
from rewriter.package import planned
from rewriter.phases import Phase
from rewriter.proof import Proof
from rewriter.settings import Settings
from rewriter.source import Source
from rewriter.stages import Stages


def _untracked(total: int) -> AbstractContextManager[Told]:
    del total
    return nullcontext(lambda *_: None)


class Pipeline:
    """One run.

    Args:
        settings: what to do.
        sources: what to do it to: one file, or all those of a package.
        say: is told what begins.
        track: shows how the writing of so many bytes goes on; what it gives is told the name and
            the bytes of each weight.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sequence[Source],
        *,
        say: Callable[[str], None],
        track: Callable[[int], AbstractContextManager[Told]] = _untracked,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self.outcome = Outcome(str(settings.model), settings.target)
        self._run = Run(settings, Stages(say, self.outcome.seconds), track, self.outcome)

    def run(self) -> Outcome:
        """Do everything; the output folder appears only if nothing speaks against it.

        Raises:
            RewriteError: with its exit code; then nothing was written.
        """
        settings = self._settings
        Proof(settings, Phase("model", {}), self._run.stage, ir.load).require_runtimes()
        if settings.output is None:
            with tempfile.TemporaryDirectory(prefix="rewrite-") as scratch:
                self._graphs(Staging(Path(scratch), Path(scratch)))
            return self.outcome
        output, overwrite = settings.output, settings.overwrite
        names = {path.name for s in self._sources for path in s.companions().paths()}
        model = settings.model
        with staging(output, overwrite=overwrite, model=model, companions=names) as stage:
            self._graphs(stage)
            if all(graph.kept for graph in self.outcome.graphs):
                self._companions(stage)
                stage.publish()
                self.outcome.output = str(output)
        return self.outcome

    def _graphs(self, stage: Staging) -> None:
        plan, notes = self._planned()
        for source, phases in plan:
            if not Component(self._run, source).graphs(stage, phases):
                break
        self.outcome.graphs[0].notes += notes
        for graph in self.outcome.graphs:
            if graph.parts:  # they stand for it
                (stage.folder / graph.file).unlink()

    def _planned(self) -> tuple[list[tuple[Source, list[Phase]]], list[str]]:
        settings = self._settings
        with self._run.stage("read", f"reading {settings.model}"):
            models = {s.name: s.read(settings.max_seq_len or None) for s in self._sources}
            self.outcome.weights_before = sum(weight_bytes(model) for model in models.values())
            for source in self._sources:
                source.companions()  # what is wrong with it is found before the work
            return planned(settings, self._sources, models)

    def _companions(self, stage: Staging) -> None:
        for source in self._sources:
            companions = source.companions()
            if companions.genai is not None:
                with self._run.stage("config", "writing the configuration for onnxruntime-genai"):
                    companions = genai_files(stage.folder, companions, self._settings.target)
            stage.copy(companions.files)
            self.outcome.graphs[0].notes += companions.notes
