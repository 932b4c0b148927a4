"""Where: branches that are stored or fed, in every type, and infinities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import (
    Array,
    const,
    exactly,
    run,
)

SHAPE, FIVE = (2, 3, 8), (1, 2, 2, 3, 8)


def chosen(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Where of booleans, for which ONNX Runtime's CPU has no kernel."""
    return {"y1": np.where(feeds["x1"], feeds["x2"], feeds["x3"])}


@cases("Where")
def where(form: Forms) -> Iterator[Case]:
    """Branches of every type, stored or fed."""
    seen = run(*SHAPE, dtype="bool")
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        yield form(
            "branches run-time",
            dtype,
            seen,
            run(*SHAPE),
            run(*SHAPE),
            reference=chosen if dtype == "bool" else None,
            quick=dtype in {"f32", "bool", "uint8"},
        )
    for dtype in FLOATS:
        yield form("a constant branch", dtype, seen, run(*SHAPE), const(draw=exactly(3)))
        yield form("two constants", dtype, seen, const(draw=exactly(1)), const(draw=exactly(-3)))
        yield form(
            "scalar condition",
            dtype,
            run(dtype="bool", draw=exactly(True)),
            run(*SHAPE),
            run(*SHAPE),
        )
    for dtype in ("int32", "int64"):
        yield form("one element first", dtype, seen, const(draw=exactly(3)), run(*SHAPE))
        yield form("one element second", dtype, seen, run(*SHAPE), const(1, draw=exactly(3)))
        yield form("a stored row", dtype, seen, run(*SHAPE), const(8, draw=exactly(3)))
        yield form("one row, fed", dtype, seen, run(*SHAPE), run(1, 1, 8))
        yield form(
            "all of one element", dtype, run(1, dtype="bool"), run(1), const(1, draw=exactly(3))
        )
    for dtype in (*FLOATS, "int32", "int64"):
        yield form("rank 5", dtype, run(*FIVE, dtype="bool"), run(*FIVE), run(*FIVE))


@cases("Where")
def hidden(form: Forms) -> Iterator[Case]:
    """Infinities of a mask, then Softmax: no row is hidden whole."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            mask = run(1, 1, 4, 4, dtype="bool", draw=exactly(np.tri(4, dtype=bool)))
            added = graph.op("Where", mask, const(draw=exactly(0)), const(draw=exactly(-np.inf)))
            return graph.op("Softmax", graph.op("Add", run(1, 2, 4, 4), added), axis=-1)

        yield form.graph("0 and -inf into Softmax", dtype, build)
