"""Boxes stand below what they read, and no two at one place."""

from __future__ import annotations

import random

import pytest

from rewriter.report.html.layout import HEIGHT, WIDTH, laid_out


@pytest.mark.parametrize("seed", range(5))
def test_every_box_is_below_its_sources_and_alone(seed: int) -> None:
    draw = random.Random(seed)
    sources = [
        sorted({draw.randrange(n) for _ in range(draw.randrange(3))} if n else ())
        for n in range(80)
    ]
    layout = laid_out(sources)
    assert len(set(layout.boxes)) == 80
    for one, node in layout.lines:
        assert layout.boxes[node][1] >= layout.boxes[one][1] + HEIGHT
    assert max(x for x, _ in layout.boxes) + WIDTH <= layout.width
    assert max(y for _, y in layout.boxes) + HEIGHT <= layout.height
    assert sorted(layout.lines) == [
        (one, n) for one in range(80) for n in range(80) if one in sources[n]
    ]


def test_a_constant_stands_right_above_its_reader() -> None:
    layout = laid_out([[], [0], [1], [2], [], [3, 4]])
    assert layout.boxes[4][1] == layout.boxes[3][1]
