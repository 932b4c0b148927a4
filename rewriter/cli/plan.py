"""``rewrite plan MODEL --ep EP``: what would happen, from the table and the rules alone."""

from __future__ import annotations

import argparse

from rich.console import Console

from rewriter.cli.common import dims_of, frontends, target_of
from rewriter.lowering import plan
from rewriter.outcome import Exit
from rewriter.passes.fix_dims import fix_dims
from rewriter.report.text import show_plan


def run(options: argparse.Namespace) -> int:
    """Print the plan; 3 if something would stay behind or is unknown."""
    model = frontends().read(options.model)
    fix_dims(model, dims_of(options))
    report = plan(model, target_of(options), disable=options.disable)
    show_plan(report, Console(highlight=False, soft_wrap=True))
    return Exit.STUCK if report.stuck or report.unknown else Exit.GOOD
