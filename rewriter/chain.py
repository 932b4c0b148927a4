"""Parts that run one after the other, as one model: compared, and placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from rewriter.errors import RewriteError
from rewriter.parity.compare import compare
from rewriter.parity.domains import Array
from rewriter.parity.feeds import Feeds
from rewriter.parity.settings import EXACT, MODEL_TOLERANCE
from rewriter.placement import Placement
from rewriter.runtime import child

Arrays = Mapping[str, Array]
Run = Callable[[Path, Sequence[Feeds]], Sequence[Arrays]]
"""Runs a file on feeds."""


def run_chain(files: Sequence[Path], feeds: Sequence[Feeds], run: Run) -> list[dict[str, Array]]:
    """Run parts in their order; each reads inputs of the whole and what parts before it computed.

    Args:
        files: the parts.
        feeds: inputs of the whole.
        run: runs one part; it is given what that part reads.

    Returns:
        For each feed, everything that was fed or computed, by name.
    """
    values: list[dict[str, Array]] = [dict(feed) for feed in feeds]
    for file in files:
        names = [value.name or "" for value in ir.load(file).graph.inputs]
        given = [{name: known[name] for name in names} for known in values]
        for known, computed in zip(values, run(file, given), strict=True):
            known.update(computed)
    return values


def on_cpu(time_limit: float) -> Run:
    """Runs a file on ONNX Runtime's CPU, without optimizations."""

    def run(file: Path, feeds: Sequence[Feeds]) -> Sequence[Arrays]:
        job = child.Job(file, config=EXACT, feeds=feeds)
        return child.run(job, time_limit=time_limit).outputs

    return run


def require_equal(
    whole: Path, files: Sequence[Path], feeds: Sequence[Feeds], time_limit: float
) -> None:
    """Parts compute what the whole does, bit for bit, on ONNX Runtime's CPU.

    In float16 within the tolerance of that type: ONNX Runtime keeps float32 between nodes there,
    and rounds what a part hands on.

    Raises:
        RewriteError: they do not, which is a fault of ours.
        RuntimeFault: the runtime failed, or took too long.
    """
    run = on_cpu(time_limit)
    halves = any(value.dtype == ir.DataType.FLOAT16 for f in files for value in _handed(f))
    expected = run(whole, feeds)
    for outputs, known in zip(expected, run_chain(files, feeds, run), strict=True):
        for name, array in outputs.items():
            if not _same(array, known[name], halves=halves):
                raise RewriteError(f"{whole.name}: its parts compute another '{name}' than it does")


def _handed(file: Path) -> Sequence[ir.Value]:
    return list(ir.load(file).graph.outputs)


def _same(array: Array, other: Array, *, halves: bool) -> bool:
    if array.tobytes() == other.tobytes():
        return True
    return halves and compare(array, other).max_std <= MODEL_TOLERANCE["float16"]


def place_chain(
    files: Sequence[Path],
    feeds: Sequence[Feeds],
    place: Callable[[Path, Sequence[Feeds]], Placement],
) -> list[Placement]:
    """Place each part; where there are feeds, on what the parts before it computed there.

    The outputs of the last are those of the whole, and all that was computed besides.
    """
    placed: list[Placement] = []

    def run(file: Path, given: Sequence[Feeds]) -> Sequence[Arrays]:
        placed.append(place(file, given))
        return placed[-1].outputs

    if not feeds:
        return [place(file, ()) for file in files]
    values = run_chain(files, feeds, run)
    fed = {name for feed in feeds for name in feed}
    placed[-1].outputs[:] = [{n: a for n, a in v.items() if n not in fed} for v in values]
    return placed


def merged(placed: Sequence[Placement]) -> Placement:
    """The placement of a whole from those of its parts."""
    first = placed[0]
    return Placement(
        runtime=first.runtime,
        on_ep=sum(one.on_ep for one in placed),
        on_cpu=sum(one.on_cpu for one in placed),
        cpu_ops=dict(sum((Counter(one.cpu_ops) for one in placed), Counter[str]())),
        cpu_nodes=[node for one in placed for node in one.cpu_nodes],
        reasons={name: why for one in placed for name, why in one.reasons.items()},
        partitions=sum(one.partitions for one in placed),
        outputs=placed[-1].outputs,
        seconds=sum(one.seconds for one in placed),
        full=all(one.full for one in placed),
        note=next((one.note for one in placed if one.note), ""),
    )
