"""``rewrite audit``: are graphs one function, does a device agree, and what does each cost?"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx_ir as ir

from rewriter.audit import Audit, Dump, Pair, audit, dump
from rewriter.audit.costs import cost_of, ranked
from rewriter.audit.on_device import Device, DeviceAudit, audit_device
from rewriter.cli.common import frontends
from rewriter.cli.console import progress, results
from rewriter.errors import BadInput, RuntimeFault
from rewriter.outcome import Exit
from rewriter.output import Staging, staging
from rewriter.parity.trial import Side, Trial, trial
from rewriter.passes.dim_fit import windows
from rewriter.passes.fix_dims import fix_dims
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.report.audited import show_audit
from rewriter.report.costs import cost_data, show_costs
from rewriter.report.data import as_text
from rewriter.report.departed import show_device_audit
from rewriter.runtime.versions import installed
from rewriter.source import Source


def run(options: argparse.Namespace) -> int:
    """Compare, or rank, and print; 4 if what should be one function is not."""
    if installed("ort-cpu") is None:
        raise BadInput("an audit needs ONNX Runtime: pip install 'ep-rewriter[ort]'")
    others, ep = len(options.results), options.ep
    if options.runtime is not None and ep is None:
        raise BadInput("--runtime says whose environment --ep asks; give --ep too")
    _require_runtime(ep, options.runtime)
    with tempfile.TemporaryDirectory(prefix="rewrite-") as name:
        scratch = Path(name)
        if options.cost:
            if not others or options.dump is not None:
                raise BadInput("--cost ranks two or more models, and has nothing to --dump")
            return _rank(options, scratch)
        if ep is not None:
            if others:
                raise BadInput("--ep asks about one model: give one, or --cost to rank several")
            return _on_device(options, scratch)
        if others != 1:
            raise BadInput("give two models to compare, or one and --ep to ask a device")
        return _compare(options, scratch)


def _require_runtime(ep: str | None, python: Path | None) -> None:
    """A runtime that is asked has to be there."""
    if ep is None:
        return
    try:
        found = installed(ep, python)
    except RuntimeFault as fault:
        raise BadInput(f"--runtime {fault}; name an interpreter, such as env/bin/python") from None
    if found is None:
        where = python or "this environment"
        raise BadInput(f"--ep {ep}: {where} has no runtime of it (pip install 'ep-rewriter[{ep}]')")


def _compare(options: argparse.Namespace, scratch: Path) -> int:
    """Two models on ONNX Runtime's CPU; where they part."""
    paths = (options.original, *options.results)
    say, limit = progress(), options.budget * 60
    original, result = (_side(path, scratch) for path in paths)
    given = {value.name for value in result.model.graph.inputs}
    stored = original.model.graph.initializers
    asked = [v.name for v in original.model.graph.inputs if v.name not in stored]
    if missing := [name for name in asked if name not in given]:
        raise BadInput(
            f"{result.file} has no input {', '.join(map(repr, missing))}, which {original.file} "
            "needs; audit compares models that take the same inputs"
        )
    pair = _pair(original, result, options.seed, scratch, limit)
    say(f"comparing {original.file} and {result.file} on ONNX Runtime's CPU")
    found, written = audit(pair), None
    if options.dump is not None and found.drift is not None:
        with staging(options.dump, overwrite=False) as stage:
            written = dump(found.drift, pair, stage.folder, limit)
            stage.publish()
    with results() as console:
        if options.json:
            console.out(as_text("audit", _data(found, written, options.dump)))
        else:
            show_audit(found, written, options.dump, console)
    return int(Exit.GOOD if found.ok else Exit.PARITY)


def _on_device(options: argparse.Namespace, scratch: Path) -> int:
    """One model on a device and on ONNX Runtime's CPU; where the device departs."""
    side = _side(options.original, scratch)
    device = Device(options.ep, options.runtime, scratch, options.budget * 60)
    progress()(f"comparing {side.file} on {options.ep}'s runtime and on ONNX Runtime's CPU")
    given = _given(side.model, side.model, options.seed)
    with _dumped(options.dump) as (folder, publish):
        found = audit_device(side, given, device, folder)
        written = options.dump if folder is not None and found.departure is not None else None
        if written is not None:
            publish()
    with results() as console:
        if options.json:
            console.out(as_text("audit", _device_data(found, written)))
        else:
            show_device_audit(found, written, console)
    return int(Exit.GOOD if found.ok else Exit.PARITY)


def _rank(options: argparse.Namespace, scratch: Path) -> int:
    """Several models by what they cost; each has to be the function that the first is."""
    say, limit, ep = progress(), options.budget * 60, options.ep
    first, *others = (_side(path, scratch) for path in (options.original, *options.results))
    same = {first.file: True}
    for at, other in enumerate(others):
        folder = scratch / f"pair{at}"
        folder.mkdir()
        say(f"comparing {first.file} and {other.file} on ONNX Runtime's CPU")
        same[other.file] = audit(_pair(first, other, options.seed, folder, limit)).ok
    costs = []
    for side in (first, *others):
        if ep is not None:
            say(f"placing {side.file} on {ep}'s own runtime")
        costs.append(cost_of(side, ep, options.runtime, limit))
    found = ranked(costs, ep)
    with results() as console:
        if options.json:
            console.out(as_text("audit", cost_data(found, same)))
        else:
            show_costs(found, console)
            for file in (file for file, equal in same.items() if not equal):
                console.print(f"{file} is not the function that {first.file} is", style="bold red")
    return int(Exit.GOOD if all(same.values()) else Exit.PARITY)


@contextmanager
def _dumped(target: Path | None) -> Generator[tuple[Path | None, Callable[[], None]]]:
    """A folder to write into, and what makes it appear; none where nothing was asked."""
    if target is None:
        yield None, lambda: None
        return
    with staging(target, overwrite=False) as stage:
        yield stage.folder, stage.publish


def _side(path: Path, scratch: Path) -> Side:
    """A model and its file; the portable graph of a checkpoint is written."""
    source: Source = frontends().open_source(path)
    model, file = source.read(None), source.file
    if source.built:
        file = Staging(scratch, scratch).write(model, f"{len(list(scratch.iterdir()))}.onnx")[0]
        model = ir.load(file)
    fix_dims(model, {})  # what follows from weights and attributes is no free dim
    settle_shapes(model)
    return Side(model, file)


def _given(original: ir.Model, result: ir.Model, seed: int) -> Trial:
    return trial(result, seed, windows=dict(windows(original).values()))


def _pair(original: Side, result: Side, seed: int, scratch: Path, limit: float) -> Pair:
    given = _given(original.model, result.model, seed)
    return Pair(original, result, given, scratch, limit)


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


def _device_data(found: DeviceAudit, folder: Path | None) -> dict[str, Any]:
    return {"ok": found.ok, **asdict(found), "dump": folder and str(folder)}
