"""``rewrite MODEL --ep EP``: the main job."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli.common import frontends, idle_overrides, ready_command, rules_of, target_of
from rewriter.cli.console import progress, results, tracked
from rewriter.cli.quantized import quantization_of, quantized_target
from rewriter.cli.sizes import sizes_of
from rewriter.compiling import require_compiler
from rewriter.errors import BadInput
from rewriter.leftovers import put_right
from rewriter.output import check_target, disk
from rewriter.pipeline import Pipeline
from rewriter.report.data import as_json
from rewriter.report.text import show
from rewriter.report.write import check_report, write_report
from rewriter.settings import Settings
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Rewrite a file, print the report, return the exit code."""
    if options.output is not None:
        with disk(options.output):
            put_right(options.output.absolute())  # it may be the model's own folder
    sources: list[Source] = frontends().open_sources(options.model, options.weights)
    settings = _settings(options, sources)
    with ready_command(options):
        outcome = Pipeline(settings, sources, say=progress(), track=tracked).run()
    for graph in outcome.graphs:
        graph.notes += idle_overrides(options, graph.report)
    if options.report is not None:
        write_report(outcome, options.report)
    with results() as console:
        if options.json:
            console.out(as_json(outcome), end="")
        else:
            show(outcome, console)
    return int(outcome.exit())


def _settings(options: argparse.Namespace, sources: list[Source]) -> Settings:
    """What to do; whatever can be found wrong before the work is found here."""
    if options.parity == "device" and options.no_place:
        raise BadInput("--parity device asks the runtime, which --no-place forbids; drop one")
    first = sources[0].file
    model = first if len(sources) == 1 else first.parent
    sizes = sizes_of(options, sources)
    disable = rules_of(options)
    target = quantized_target(options, target_of(options))
    if options.compile:
        require_compiler(target.ep)
    output = options.output or Path(f"{model.stem}-{target.ep}")
    _check_output(options, sources, output)
    if options.report is not None:
        beside = [path for source in sources for path in source.companions().paths()]
        check_report(options.report, output, [*(s.file for s in sources), *beside])
    return Settings(
        model=model,
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
        mask_value=options.mask_value,
        drawn=options.report is not None and options.report.suffix == ".html",
        split=options.split,
        **quantization_of(options),
        compile=options.compile,
    )


def _check_output(options: argparse.Namespace, sources: list[Source], output: Path) -> None:
    """Nothing is lost by what is written."""
    for source in sources:
        names = {path.name for path in source.companions().paths()}
        check_target(output, source.file, overwrite=options.overwrite, companions=names)
        inside = source.file.resolve().parent == output.resolve()
        if inside and (options.static or options.split or source.name):
            raise BadInput(
                f"-o {output}: is the model's own folder, and the graphs to write have other "
                "names, so that --overwrite would delete the model; give another folder"
            )
