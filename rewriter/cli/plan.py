"""``rewrite plan MODEL --ep EP``: what would happen, from the table and the rules alone."""

from __future__ import annotations

import argparse

from rich.text import Text

from rewriter.cli.common import (
    dims_of,
    frontends,
    idle_overrides,
    ready_command,
    rules_of,
    target_of,
)
from rewriter.cli.console import results
from rewriter.lowering import plan
from rewriter.outcome import Exit
from rewriter.passes.fix_dims import fix_dims
from rewriter.report.text import show_notes, show_plan


def run(options: argparse.Namespace) -> int:
    """Print the plan; 3 if something would stay behind or is unknown."""
    asked = dims_of(options)
    disable = rules_of(options)
    target = target_of(options)
    model = frontends().read(options.model)
    dims = fix_dims(model, asked)
    if target.static_only:
        with ready_command(options):
            dims.require_fixed(target.ep)
    report = plan(model, target, disable=disable)
    code = Exit.STUCK if report.stuck or report.unknown else Exit.GOOD
    with results() as console:
        show_plan(report, console)
        show_notes([*report.notes, *idle_overrides(options, report)], console)
        left = f"{len(report.stuck)} stuck, {len(report.unknown)} unknown"
        words = "every node would be legal" if code is Exit.GOOD else f"nodes would be left: {left}"
        console.print(Text(f"{words} (exit {int(code)})", "green" if not code else "red"))
    return code
