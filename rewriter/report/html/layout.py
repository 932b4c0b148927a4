"""Places for the boxes of a graph: rows by distance from the inputs, columns near the sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 168, 30
"""Of a box."""
_ACROSS, _DOWN = WIDTH + 14, HEIGHT + 26


@dataclass(frozen=True, slots=True)
class Layout:
    """Where boxes are, in pixels; ``boxes`` are the left upper corners.

    Attributes:
        boxes: (x, y) of each node.
        lines: (from, to) nodes, by position.
        width: of the whole.
        height: of the whole.
    """

    boxes: tuple[tuple[int, int], ...]
    lines: tuple[tuple[int, int], ...]
    width: int
    height: int

    def path(self, line: tuple[int, int]) -> str:
        """A line as the path of an SVG, from under one box to above another."""
        (x0, y0), (x1, y1) = self.boxes[line[0]], self.boxes[line[1]]
        x0, x1, y0 = x0 + WIDTH // 2, x1 + WIDTH // 2, y0 + HEIGHT
        bend = max((y1 - y0) // 2, 12)
        return f"M{x0},{y0}C{x0},{y0 + bend} {x1},{y1 - bend} {x1},{y1}"


def laid_out(sources: Sequence[Sequence[int]]) -> Layout:
    """Lay a graph out.

    Args:
        sources: for each node, those before it in the sequence that it reads.
    """
    lines = tuple((one, node) for node, found in enumerate(sources) for one in found)
    rows = _rows(sources)
    ranks: dict[int, list[int]] = {}
    for node, row in enumerate(rows):
        ranks.setdefault(row, []).append(node)
    columns: dict[int, int] = {}
    for row in sorted(ranks):
        wanted = {node: _mean([columns[one] for one in sources[node]]) for node in ranks[row]}
        order = sorted(ranks[row], key=lambda node: (wanted[node], node))
        columns |= {node: at for at, node in enumerate(order)}
    widest = max(columns.values(), default=-1) + 1
    boxes = tuple((columns[node] * _ACROSS, rows[node] * _DOWN) for node in range(len(sources)))
    return Layout(boxes, lines, widest * _ACROSS, len(ranks) * _DOWN)


def _rows(sources: Sequence[Sequence[int]]) -> list[int]:
    """Longest way from a node without sources; such a node stands right above its first reader."""
    rows: list[int] = []
    for found in sources:
        rows.append(max((rows[one] + 1 for one in found), default=0))
    first: dict[int, int] = {}
    for node, found in enumerate(sources):
        for one in found:
            first[one] = min(first.get(one, rows[node]), rows[node])
    return [
        row if found or node not in first else max(first[node] - 1, 0)
        for node, (row, found) in enumerate(zip(rows, sources, strict=True))
    ]


def _mean(columns: Sequence[int]) -> float:
    return sum(columns) / len(columns) if columns else 0.0
