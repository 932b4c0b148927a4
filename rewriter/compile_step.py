"""What the NPU loads, made of the graphs that a run has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from rewriter.chain import on_cpu, run_chain
from rewriter.compiling import compile_graph
from rewriter.cost import estimate
from rewriter.outcome import GraphOutcome
from rewriter.parity.feeds import Feeds
from rewriter.settings import Settings

_SECONDS = 3600
"""What compiling one file may take: 213 s were measured at 1.6 billion weights (real_size.md)."""

_SESSIONS = 2
"""How often a graph runs so that both sides can be compared."""


def compile_files(
    graph: GraphOutcome, files: Sequence[Path], settings: Settings, feeds: Sequence[Feeds]
) -> None:
    """Compile each file of a graph, and compare it with what is not compiled.

    Args:
        graph: gets what was made.
        files: the graph, or its parts in the order they run.
        settings: what was asked.
        feeds: inputs of the whole.

    Raises:
        RewriteError: a file cannot be compiled, or computes something else then.
    """
    minutes = sum(estimate(ir.load(file)).minutes(_SESSIONS) for file in files)
    if minutes > settings.budget:
        graph.notes.append(
            f"compiled was not compared: running it would take about {minutes:.2g} minutes in the "
            f"emulator, more than --budget {settings.budget:g}"
        )
        feeds = ()
    values = run_chain(files, feeds, on_cpu(_SECONDS)) if len(files) > 1 and feeds else list(feeds)
    for file in files:
        names = [value.name or "" for value in ir.load(file).graph.inputs]
        made = compile_graph(
            file,
            options=settings.target.options,
            python=settings.runtime,
            time_limit=_SECONDS,
            feeds=[{name: known[name] for name in names} for known in values],
        )
        graph.compiled.append(made)
        if made.note:
            graph.notes.append(f"{made.context.name}: {made.note}")
