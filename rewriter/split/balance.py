"""How layers are shared out: runs of about the same bytes of weights."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.split.flow import nbytes

LIMIT = 1 << 30
"""Bytes of weights of a part, where nobody asks for a number of parts: about the largest graph
seen to compose in 4 bits (994 MB, real_size.md), where the time for it already grows faster than
its size; 4.65 billion weights in one graph are reported not to compose on a device."""
_SHAPES = frozenset({ir.DataType.BOOL, ir.DataType.INT64})
"""Types of constants that differ between graphs of one model for different numbers of tokens;
those graphs are to be cut alike."""


def require_layers(count: int, parts: int) -> None:
    """So many layers are enough for so many parts.

    Raises:
        BadInput: they are not.
    """
    if not 1 <= parts <= count:
        only = "1 layer" if count == 1 else f"{count} layers"
        raise BadInput(
            f"--split {parts}: the model has {only}; give a number from 1 to {count}, or auto"
        )


def balance(layers: Sequence[frozenset[ir.Value]], parts: int | None) -> list[range]:
    """Runs of layers, the largest of them as small as can be.

    Args:
        layers: the constants of each.
        parts: how many runs; ``None`` for as few as keep each within :data:`LIMIT`.

    Raises:
        BadInput: there are fewer layers than runs.
    """
    count = len(layers)
    if parts is not None:
        require_layers(count, parts)
    sizes = _sizes(layers)
    if parts is not None:
        return _runs(sizes, count, parts)
    for number in range(1, count):
        runs = _runs(sizes, count, number)
        if max(sizes[run.start][run.stop] for run in runs) <= LIMIT:
            return runs
    return _runs(sizes, count, count)


def _sizes(layers: Sequence[frozenset[ir.Value]]) -> list[list[int]]:
    """Bytes of the layers from one number up to another; what two share counts once."""
    sizes = [[0] * (len(layers) + 1) for _ in layers]
    for first in range(len(layers)):
        seen: set[ir.Value] = set()
        for last in range(first, len(layers)):
            new = {v for v in layers[last] if v.dtype not in _SHAPES} - seen
            seen |= new
            sizes[first][last + 1] = sizes[first][last] + nbytes(new)
    return sizes


def _runs(sizes: Sequence[Sequence[int]], count: int, number: int) -> list[range]:
    """The best partition, by dynamic programming; of equal ones, that with the longest last run."""
    best: list[list[tuple[int, int]]] = [[(0, 0)] * (count + 1) for _ in range(number + 1)]
    for end in range(1, count + 1):
        best[1][end] = (sizes[0][end], 0)
    for n in range(2, number + 1):
        for end in range(n, count + 1):
            best[n][end] = min(
                (max(best[n - 1][cut][0], sizes[cut][end]), cut) for cut in range(n - 1, end)
            )
    runs: list[range] = []
    end = count
    for n in range(number, 0, -1):
        cut = best[n][end][1]
        runs.append(range(cut, end))
        end = cut
    return runs[::-1]
