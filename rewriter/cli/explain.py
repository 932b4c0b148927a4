"""``rewrite explain OP|MODEL:NODE --ep EP``: rows, evidence, rules, what each rule refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from capabilities import Target
from rewriter.cli.common import target_of
from rewriter.cli.planned import PlannedGraphs
from rewriter.errors import BadInput
from rewriter.explanation import explain, explain_node
from rewriter.report.explained import show_explanation, show_node


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    console = Console(highlight=False, soft_wrap=True)
    on = target_of(options)
    path, colon, node = options.what.partition(":")
    if colon and Path(path).exists():
        graphs = PlannedGraphs(options, path, on)
        _explain_node(graphs, node, on, console)
        return 0
    if Path(options.what).exists():
        raise BadInput(
            f"{options.what}: is a model; write {options.what}:NODE to explain a node of it"
        )
    for explanation in explain(options.what, on):
        show_explanation(explanation, console)
    return 0


def _explain_node(graphs: PlannedGraphs, node: str, on: Target, console: Console) -> None:
    """Explain a node in each graph that has it.

    Raises:
        BadInput: none has.
    """
    missing: list[BadInput] = []
    for name, model in graphs.models(fixed=False):
        try:
            found = explain_node(model, node, on)
        except BadInput as error:
            missing.append(error)
            continue
        if len(graphs.names) > 1:
            console.print(Text(f"{name}:"))
        show_node(found, on, console)
    if len(missing) == len(graphs.names):
        raise max(missing, key=lambda error: len(str(error)))  # the one that knows near names
