"""``rewrite plan MODEL --ep EP``: what would happen, from the table and the rules alone."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from capabilities import Target
from rewriter.cli.common import idle_overrides, rules_of, target_of
from rewriter.cli.console import results
from rewriter.cli.planned import PlannedGraphs
from rewriter.lowering import plan
from rewriter.outcome import Exit
from rewriter.record import Report
from rewriter.report.data import as_text, plan_data, target_data
from rewriter.report.text import show_notes, show_plan


def run(options: argparse.Namespace) -> int:
    """Print the plan of each graph; 3 if something would stay behind or is unknown."""
    disable, target = rules_of(options), target_of(options)
    graphs = PlannedGraphs(options, options.model, target)
    plans = {n: plan(m, target, disable=disable) for n, m in graphs.models(fixed=True)}
    for report in plans.values():
        report.notes += idle_overrides(options, report)
    stuck, unknown = (sum(len(getattr(r, n)) for r in plans.values()) for n in ("stuck", "unknown"))
    code = Exit.STUCK if stuck or unknown else Exit.GOOD
    with results() as console:
        if options.json:
            console.out(as_text("plan", _data(target, plans, graphs.notes, code)))
            return code
        for name, report in plans.items():
            if len(plans) > 1:
                console.print(Text(f"{name}:"))
            show_plan(report, console)
            show_notes(report.notes, console)
        show_notes(graphs.notes, console)
        left = f"{stuck} stuck, {unknown} unknown"
        words = "every node would be legal" if code is Exit.GOOD else f"nodes would be left: {left}"
        console.print(Text(f"{words} (exit {int(code)})", "green" if not code else "red"))
    return code


def _data(
    target: Target, plans: Mapping[str, Report], notes: list[str], code: Exit
) -> dict[str, Any]:
    return {
        "target": target_data(target),
        "exit": int(code),
        "graphs": [
            {"name": name, **plan_data(report), "notes": report.notes}
            for name, report in plans.items()
        ],
        "notes": notes,
    }
