"""``rewrite explain OP|MODEL:NODE --ep EP``: rows, evidence, rules, what each rule refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from rewriter.cli.common import dims_of, frontends, target_of
from rewriter.explanation import explain, explain_node
from rewriter.passes.fix_dims import fix_dims
from rewriter.report.explained import show_explanation, show_node


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    console = Console(highlight=False, soft_wrap=True)
    on = target_of(options)
    path, colon, node = options.what.partition(":")
    if colon and Path(path).exists():
        model = frontends().read(path)
        fix_dims(model, dims_of(options))
        show_node(explain_node(model, node, on), on, console)
        return 0
    for found in explain(options.what, on):
        show_explanation(found, console)
    return 0
