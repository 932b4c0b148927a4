"""``rewrite plan MODEL --ep EP``: what would happen, from the table and the rules alone."""

from __future__ import annotations

import argparse

from rich.text import Text

from rewriter.cli.common import frontends, idle_overrides, ready_command, rules_of, target_of
from rewriter.cli.console import results
from rewriter.cli.sizes import sizes_of
from rewriter.lowering import plan
from rewriter.outcome import Exit
from rewriter.passes.fix_dims import fix_dims
from rewriter.phases import phases
from rewriter.report.text import show_notes, show_plan
from rewriter.settings import Settings
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Print the plan of each graph; 3 if something would stay behind or is unknown."""
    disable = rules_of(options)
    source: Source = frontends().open_source(options.model, options.weights)
    settings = Settings(source.file, target_of(options), None, **sizes_of(options, source))
    context = settings.max_seq_len or None
    found, notes = phases(settings, source.read(context), built=source.built)
    reports = []
    for phase in found:
        model = source.read(context)
        dims = fix_dims(model, phase.dims)
        if settings.target.static_only:
            with ready_command(options):
                dims.require_fixed(settings.target.ep)
        reports.append(plan(model, settings.target, disable=disable))
    stuck, unknown = (sum(len(getattr(r, n)) for r in reports) for n in ("stuck", "unknown"))
    code = Exit.STUCK if stuck or unknown else Exit.GOOD
    with results() as console:
        for phase, report in zip(found, reports, strict=True):
            if len(found) > 1:
                console.print(Text(f"{phase.name}:"))
            show_plan(report, console)
            show_notes([*report.notes, *idle_overrides(options, report)], console)
        show_notes(notes, console)
        left = f"{stuck} stuck, {unknown} unknown"
        words = "every node would be legal" if code is Exit.GOOD else f"nodes would be left: {left}"
        console.print(Text(f"{words} (exit {int(code)})", "green" if not code else "red"))
    return code
