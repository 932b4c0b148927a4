"""RotaryEmbedding of both domains: layouts, parts of a head, positions, tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import FLOATS, Case, Forms, cases
from rewriter.probe.operands import Operand, const, exactly, fed, run

H, S, D = 4, 4, 8
"""Heads, tokens, and the size of a head."""
TABLES = const(16, D // 2), const(16, D // 2)
PART = const(16, D // 4), const(16, D // 4)
WHERE = run(1, S, dtype="int64", draw=exactly([[3, 4, 5, 6]]))


@cases("RotaryEmbedding")
def rotary(form: Forms) -> Iterator[Case]:
    """Both layouts, parts of a head, tables that are looked up already."""
    four, three = run(1, H, S, D), run(1, S, H * D)
    for dtype in FLOATS:
        forms: dict[str, tuple[Operand, tuple[Operand, ...], dict[str, Any]]] = {
            "rank 4": (four, TABLES, {}),
            "rank 4 interleaved": (four, TABLES, {"interleaved": 1}),
            "rank 4, a part": (four, PART, {"rotary_embedding_dim": D // 2}),
            "rank 3": (three, TABLES, {"num_heads": H}),
            "rank 3 interleaved": (three, TABLES, {"num_heads": H, "interleaved": 1}),
            "rank 4, run-time tables": (four, tuple(map(fed, TABLES)), {}),
        }
        for what, (x, tables, more) in forms.items():
            yield form(
                what,
                dtype,
                x,
                *tables,
                WHERE,
                opset=23,
                quick=(what, dtype) == ("rank 4", "f32"),
                **more,
            )
        rows = run(1, S, D // 2), run(1, S, D // 2)
        yield form("no positions", dtype, four, *rows, opset=23)


@cases("com.microsoft::RotaryEmbedding")
def contrib_rotary(form: Forms) -> Iterator[Case]:
    """The same in com.microsoft; attributes that are left out are what some readers miss."""
    four, three = run(1, H, S, D), run(1, S, H * D)
    first = run(1, dtype="int64", draw=exactly([3]))
    written = {"interleaved": 0}
    for dtype in FLOATS:
        forms: dict[str, tuple[Operand, Operand, tuple[Operand, ...], dict[str, Any]]] = {
            "rank 4": (four, WHERE, TABLES, {}),
            "rank 4, interleaved=0": (four, WHERE, TABLES, written),
            "rank 4, interleaved=1": (four, WHERE, TABLES, {"interleaved": 1}),
            "rank 4, a part": (four, WHERE, PART, {"rotary_embedding_dim": D // 2, "num_heads": H}),
            "rank 4, first position": (four, first, TABLES, written),
            "rank 4, run-time tables": (four, WHERE, tuple(map(fed, TABLES)), written),
            "rank 3": (three, WHERE, TABLES, {"num_heads": H, **written}),
            "rank 3, num_heads left out": (three, WHERE, TABLES, written),
            "rank 3, interleaved=1": (three, WHERE, TABLES, {"num_heads": H, "interleaved": 1}),
            "rank 3, a part": (
                three,
                WHERE,
                PART,
                {"rotary_embedding_dim": D // 2, "num_heads": H},
            ),
        }
        for what, (x, where, tables, more) in forms.items():
            quick = what in {"rank 4", "rank 4, interleaved=0", "rank 4, first position"}
            yield form(what, dtype, x, where, *tables, quick=quick, **more)
