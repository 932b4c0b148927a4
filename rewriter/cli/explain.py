"""``rewrite explain OP|MODEL:NODE --ep EP``: rows, evidence, rules, what each rule refuses."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rewriter.cli.common import frontends, target_of
from rewriter.cli.sizes import sizes_of
from rewriter.explanation import explain, explain_node
from rewriter.passes.fix_dims import fix_dims
from rewriter.phases import phases
from rewriter.report.explained import show_explanation, show_node
from rewriter.settings import Settings
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Print the explanation."""
    console = Console(highlight=False, soft_wrap=True)
    on = target_of(options)
    path, colon, node = options.what.partition(":")
    if colon and Path(path).exists():
        source: Source = frontends().open_source(path, options.weights)
        settings = Settings(source.file, on, None, **sizes_of(options, source))
        context = settings.max_seq_len or None
        found, _ = phases(settings, source.read(context), built=source.built)
        for phase in found:
            model = source.read(context)
            fix_dims(model, phase.dims)
            if len(found) > 1:
                console.print(Text(f"{phase.name}:"))
            show_node(explain_node(model, node, on), on, console)
        return 0
    for explanation in explain(options.what, on):
        show_explanation(explanation, console)
    return 0
