"""``rewrite plan MODEL --ep EP``: what would happen, from the table and the rules alone."""

from __future__ import annotations

import argparse

from rich.text import Text

from rewriter.cli.common import idle_overrides, rules_of, target_of
from rewriter.cli.console import results
from rewriter.cli.planned import PlannedGraphs
from rewriter.lowering import plan
from rewriter.outcome import Exit
from rewriter.report.text import show_notes, show_plan


def run(options: argparse.Namespace) -> int:
    """Print the plan of each graph; 3 if something would stay behind or is unknown."""
    disable, target = rules_of(options), target_of(options)
    graphs = PlannedGraphs(options, options.model, target)
    reports = [plan(model, target, disable=disable) for _, model in graphs.models(fixed=True)]
    stuck, unknown = (sum(len(getattr(r, n)) for r in reports) for n in ("stuck", "unknown"))
    code = Exit.STUCK if stuck or unknown else Exit.GOOD
    with results() as console:
        for name, report in zip(graphs.names, reports, strict=True):
            if len(reports) > 1:
                console.print(Text(f"{name}:"))
            show_plan(report, console)
            show_notes([*report.notes, *idle_overrides(options, report)], console)
        show_notes(graphs.notes, console)
        left = f"{stuck} stuck, {unknown} unknown"
        words = "every node would be legal" if code is Exit.GOOD else f"nodes would be left: {left}"
        console.print(Text(f"{words} (exit {int(code)})", "green" if not code else "red"))
    return code
