"""``rewrite explain OP|MODEL:NODE --ep EP``: rows, evidence, rules, what each rule refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.text import Text

from capabilities import Target
from rewriter.cli.common import rules_of, target_of
from rewriter.cli.console import results
from rewriter.cli.planned import PlannedGraphs
from rewriter.errors import BadInput
from rewriter.explanation import explain
from rewriter.node_explanation import NodeExplanation, explain_node
from rewriter.report.data import as_text
from rewriter.report.explained import explanation_data, node_data, show_explanation, show_node


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    on, disable = target_of(options), rules_of(options)
    path, node = _model_and_node(options.what)
    if path is not None and not node:
        raise BadInput(f"{path}: is a model; write {path}:NODE to explain a node of it")
    if path is not None:
        _nodes(options, path, node, on, disable)
        return 0
    found = explain(options.what, on)
    with results() as console:
        if options.json:
            console.out(as_text("explain", {"ops": [explanation_data(one) for one in found]}))
        else:
            for one in found:
                show_explanation(one, console)
    return 0


def _model_and_node(what: str) -> tuple[Path | None, str]:
    """``MODEL:NODE`` in two; both may hold colons."""
    for at in (i for i, letter in enumerate(what) if letter == ":"):
        if Path(what[:at]).exists():
            return Path(what[:at]), what[at + 1 :]
    return (Path(what), "") if Path(what).exists() else (None, what)


def _nodes(
    options: argparse.Namespace, path: Path, node: str, on: Target, disable: tuple[str, ...]
) -> None:
    """Explain a node in each graph that has it."""
    graphs = PlannedGraphs(options, path, on)
    found = _found(graphs, node, on, disable)
    with results() as console:
        if options.json:
            told = [{"graph": name, **node_data(one)} for name, one in found.items()]
            console.out(as_text("explain", {"nodes": told}))
            return
        for name, one in found.items():
            if len(graphs.names) > 1:
                console.print(Text(f"{name}:"))
            show_node(one, console)


def _found(
    graphs: PlannedGraphs, node: str, on: Target, disable: tuple[str, ...]
) -> dict[str, NodeExplanation]:
    """The node by graph.

    Raises:
        BadInput: no graph has it.
    """
    found, missing = dict[str, NodeExplanation](), list[BadInput]()
    for name, model in graphs.models(fixed=False):
        try:
            found[name] = explain_node(model, node, on, disable=disable)
        except BadInput as error:
            missing.append(error)
    if not found:
        raise max(missing, key=lambda error: len(str(error)))  # the one that knows near names
    return found
