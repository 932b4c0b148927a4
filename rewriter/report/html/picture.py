"""The picture of a graph: boxes and lines, the layers that repeat drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rewriter.node_states import NodeState
from rewriter.report.html.fold import Block, repeated
from rewriter.report.html.layout import Layout, laid_out

_MOST = 1000
"""Boxes that are drawn; more are no picture for a person, and no page of 2 MB."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A node that is shown, for so many equal ones."""

    state: NodeState
    count: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn of a graph.

    Attributes:
        shown: the nodes, by their place in :attr:`layout`.
        layout: where they are.
        block: the run of nodes that is drawn once, as positions in the graph.
        left_out: nodes that are not shown because they are too many.
    """

    shown: tuple[Shown, ...]
    layout: Layout
    block: Block | None
    left_out: int

    @property
    def frame(self) -> tuple[int, int] | None:
        """Top and bottom of the repeated boxes, in pixels."""
        rows = [
            y
            for (_, y), one in zip(self.layout.boxes, self.shown, strict=True)
            if self.block is not None and one.count > 1
        ]
        return (min(rows), max(rows)) if rows else None


def picture(states: Sequence[NodeState]) -> Picture:
    """Fold and lay out the nodes of a graph."""
    block = repeated([(s.op, s.place, s.form, s.why, s.rule) for s in states])
    kept = [n for n in range(len(states)) if block is None or block.first(n) == n]
    drawn = kept[:_MOST]
    places = {node: at for at, node in enumerate(drawn)}
    sources = []
    for node in drawn:
        found = {block.first(one) if block else one for one in states[node].feeds_on}
        sources.append(sorted(places[one] for one in found if places.get(one, node) < places[node]))
    shown = tuple(
        Shown(states[n], block.count if block and block.start <= n < block.end else 1)
        for n in drawn
    )
    return Picture(shown, laid_out(sources), block, len(kept) - len(drawn))
