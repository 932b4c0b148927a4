"""``rewrite MODEL --ep EP``: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from rewriter.cli.common import dims_of, frontends, target_of
from rewriter.errors import BadInput
from rewriter.pipeline import Pipeline, Settings
from rewriter.report.data import write_report
from rewriter.report.text import show


def run(options: argparse.Namespace) -> int:
    """Rewrite a file, print the report, return the exit code."""
    readers = frontends()
    model = readers.model_file(options.model)
    target = target_of(options)
    _check_report(options.report)
    settings = Settings(
        model=model,
        target=target,
        output=options.output or Path(f"{model.stem}-{target.ep}"),
        overwrite=options.overwrite,
        dims=dims_of(options),
        disable=tuple(options.disable),
        allow_stuck=options.allow_stuck,
        parity=options.parity,
        place=not options.no_place,
        runtime=options.runtime,
        budget=options.budget,
        seed=options.seed,
    )
    progress = Console(stderr=True, highlight=False)
    pipeline = Pipeline(
        settings,
        read=readers.read,
        companions=readers.companions,
        say=lambda words: progress.print(f"{words} ...", style="dim", markup=False),
    )
    outcome = pipeline.run()
    show(outcome, Console(highlight=False, soft_wrap=True))
    if options.report is not None:
        write_report(outcome, options.report)
    return int(outcome.exit())


def _check_report(path: Path | None) -> None:
    """Find out now, not after the work, that the report cannot be written."""
    if path is None:
        return
    if path.suffix != ".json":
        raise BadInput(f"--report {path}: this version writes .json")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"--report {path}: {path.absolute().parent} is no folder")
