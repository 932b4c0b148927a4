"""Layers that repeat are shown once: the block of a sequence that covers most by repeating."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

_LONGEST = 2000
"""Nodes of a block that are looked for; several layers of any decoder have fewer."""


@dataclass(frozen=True, slots=True)
class Block:
    """``count`` equal runs of ``period`` items, the first at ``start``."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Behind the last run."""
        return self.start + self.period * self.count

    def first(self, position: int) -> int:
        """The item of the first run that stands for one of a later run."""
        if not self.start <= position < self.end:
            return position
        return self.start + (position - self.start) % self.period


def repeated(items: Sequence[Hashable]) -> Block | None:
    """The block that hides most items when it is shown once; ``None`` if nothing repeats.

    Args:
        items: what must be equal in every run.
    """
    known: dict[Hashable, int] = {}
    codes = np.array([known.setdefault(item, len(known)) for item in items], np.int64)
    best: tuple[int, Block] | None = None
    for period in range(2, min(len(codes) // 2, _LONGEST) + 1):
        start, length = _longest(codes[period:] == codes[:-period])
        count = length // period + 1
        hidden = (count - 1) * period
        if count > 1 and (best is None or hidden > best[0]):
            best = hidden, Block(start, period, count)
    return best[1] if best else None


def _longest(equal: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """Start and length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.view(np.int8), [0]))))
    if not edges.size:
        return 0, 0
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(starts[longest]), int(lengths[longest])
