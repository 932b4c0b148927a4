"""``rewrite MODEL --ep EP``: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli.common import frontends, idle_overrides, ready_command, rules_of, target_of
from rewriter.cli.console import progress, results, tracked
from rewriter.cli.sizes import sizes_of
from rewriter.errors import BadInput
from rewriter.output import check_target
from rewriter.pipeline import Pipeline
from rewriter.report.data import check_report, write_report
from rewriter.report.text import show
from rewriter.settings import Settings
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Rewrite a file, print the report, return the exit code."""
    source: Source = frontends().open_source(options.model, options.weights)
    settings = _settings(options, source)
    with ready_command(options):
        outcome = Pipeline(settings, source, say=progress(), track=tracked).run()
    for graph in outcome.graphs:
        graph.notes += idle_overrides(options, graph.report)
    if options.report is not None:
        write_report(outcome, options.report)
    with results() as console:
        show(outcome, console)
    return int(outcome.exit())


def _settings(options: argparse.Namespace, source: Source) -> Settings:
    """What to do; whatever can be found wrong before the work is found here."""
    if options.parity == "device" and options.no_place:
        raise BadInput("--parity device asks the runtime, which --no-place forbids; drop one")
    sizes = sizes_of(options, source)
    disable = rules_of(options)
    target = target_of(options)
    output = options.output or Path(f"{source.file.stem}-{target.ep}")
    check_target(output, source.file, overwrite=options.overwrite)
    if options.report is not None:
        beside = (p for p in source.companions(None).files.values() if isinstance(p, Path))
        check_report(options.report, output, [source.file, *beside])
    return Settings(
        model=source.file,
        target=target,
        output=output,
        overwrite=options.overwrite,
        **sizes,
        disable=disable,
        allow_stuck=options.allow_stuck,
        parity=options.parity,
        place=not options.no_place,
        runtime=options.runtime,
        budget=options.budget,
        seed=options.seed,
    )
