"""``rewrite audit ORIGINAL RESULT``: are they one function, and if not, where do they part?"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx_ir as ir

from rewriter.audit import Audit, Dump, Pair, audit, dump
from rewriter.cli.common import frontends
from rewriter.cli.console import progress, results
from rewriter.errors import BadInput
from rewriter.outcome import Exit
from rewriter.output import Staging, staging
from rewriter.parity.trial import Side, trial
from rewriter.passes.dim_fit import windows
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.report.audited import show_audit
from rewriter.runtime.versions import installed
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Compare, print, and write the smallest part that differs if that was asked; 4 if it does."""
    if installed("ort-cpu") is None:
        raise BadInput("an audit needs ONNX Runtime: pip install 'ep-rewriter[ort]'")
    say, limit = progress(), options.budget * 60
    with tempfile.TemporaryDirectory(prefix="rewrite-") as name:
        scratch = Path(name)
        original, result = (_side(path, scratch) for path in (options.original, options.result))
        caches = dict(windows(original.model).values())
        pair = Pair(
            original, result, trial(result.model, options.seed, windows=caches), scratch, limit
        )
        say(f"comparing {original.file} and {result.file} on ONNX Runtime's CPU")
        found = audit(pair)
        written = None
        if options.dump is not None and found.drift is not None:
            with staging(options.dump, overwrite=False) as stage:
                written = dump(found.drift, pair, stage.folder, limit)
                stage.publish()
    with results() as console:
        if options.json:
            console.print_json(json.dumps(_data(found, written, options.dump)))
        else:
            show_audit(found, written, options.dump, console)
    return int(Exit.GOOD if found.ok else Exit.PARITY)


def _side(path: Path, scratch: Path) -> Side:
    """A model and its file; the portable graph of a checkpoint is written."""
    source: Source = frontends().open_source(path)
    model, file = source.read(None), source.file
    if source.built:
        file = Staging(scratch, scratch).write(model, f"{len(list(scratch.iterdir()))}.onnx")[0]
        model = ir.load(file)
    settle_shapes(model)
    return Side(model, file)


def _data(found: Audit, written: Dump | None, folder: Path | None) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "outputs": [asdict(output) for output in found.outputs],
        "scenarios": list(found.scenarios),
        "drift": found.drift and asdict(found.drift),
        "compared": found.compared,
        "uncomparable": found.uncomparable,
        "dump": written and {**asdict(written), "folder": str(folder)},
    }
