"""The graphs that a command would write, with their dims fixed; nothing is written."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from pathlib import Path

import onnx_ir as ir

from capabilities import Target
from rewriter.cli.common import frontends, ready_command
from rewriter.cli.sizes import sizes_of
from rewriter.package import planned
from rewriter.passes.static_cache import fix_phase
from rewriter.settings import Settings
from rewriter.source import Source


class PlannedGraphs:
    """What a model would become, graph by graph.

    Args:
        options: of the command.
        path: the model.
        target: for which EP.

    Attributes:
        notes: what a person should know of sizes nobody asked for.
        names: of the graphs.
    """

    def __init__(self, options: argparse.Namespace, path: str | Path, target: Target) -> None:
        self._options, self._target = options, target
        sources: list[Source] = frontends().open_sources(path, options.weights)
        settings = Settings(sources[0].file, target, None, **sizes_of(options, sources))
        self._context = settings.max_seq_len or None
        models = {source.name: source.read(self._context) for source in sources}
        plan, self.notes = planned(settings, sources, models)
        self._graphs = [
            (source, phase, source.graph(phase.name)) for source, phases in plan for phase in phases
        ]
        self.names = [name for _, _, name in self._graphs]

    def models(self, *, fixed: bool) -> Generator[tuple[str, ir.Model], None, None]:
        """Each graph with its name, anew.

        Args:
            fixed: stop at dims that are free where the EP needs every dim.

        Raises:
            FreeDims: some are free.
        """
        for source, phase, name in self._graphs:
            model = source.read(self._context)
            dims = fix_phase(model, phase)
            if fixed and self._target.static_only:
                with ready_command(self._options):
                    dims.require_fixed(self._target.ep)
            yield name, model
