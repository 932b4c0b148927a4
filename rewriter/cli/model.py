"""``rewrite MODEL --ep EP``: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli.common import (
    dims_of,
    frontends,
    idle_overrides,
    ready_command,
    rules_of,
    target_of,
)
from rewriter.cli.console import progress, results
from rewriter.errors import BadInput
from rewriter.outcome import Outcome
from rewriter.output import check_target
from rewriter.pipeline import Pipeline
from rewriter.report.data import check_report, write_report
from rewriter.report.text import show
from rewriter.settings import Settings


def run(options: argparse.Namespace) -> int:
    """Rewrite a file, print the report, return the exit code."""
    settings = _settings(options)
    with ready_command(options):
        outcome = _rewritten(settings)
    for graph in outcome.graphs:
        graph.notes += idle_overrides(options, graph.report)
    if options.report is not None:
        write_report(outcome, options.report)
    with results() as console:
        show(outcome, console)
    return int(outcome.exit())


def _settings(options: argparse.Namespace) -> Settings:
    """What to do; whatever can be found wrong before the work is found here."""
    if options.parity == "device" and options.no_place:
        raise BadInput("--parity device asks the runtime, which --no-place forbids; drop one")
    dims = dims_of(options)
    disable = rules_of(options)
    target = target_of(options)
    model = frontends().model_file(options.model)
    output = options.output or Path(f"{model.stem}-{target.ep}")
    check_target(output, model, overwrite=options.overwrite)
    if options.report is not None:
        check_report(options.report, output, [model, *frontends().companions(model)])
    return Settings(
        model=model,
        target=target,
        output=output,
        overwrite=options.overwrite,
        dims=dims,
        disable=disable,
        allow_stuck=options.allow_stuck,
        parity=options.parity,
        place=not options.no_place,
        runtime=options.runtime,
        budget=options.budget,
        seed=options.seed,
    )


def _rewritten(settings: Settings) -> Outcome:
    readers = frontends()
    pipeline = Pipeline(settings, read=readers.read, companions=readers.companions, say=progress())
    return pipeline.run()
