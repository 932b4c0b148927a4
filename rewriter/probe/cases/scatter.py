"""Ops that put elements where indices say, as caches are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Formula, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import Array, const, exactly, fed, run, value

REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scattered(reduction: str, *rows: int) -> Formula:
    """ScatterND of whole rows in float16, for which ONNX Runtime's CPU has no kernel."""

    def formula(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        data = feeds["x1"].copy()
        REDUCTIONS[reduction].at(data, list(rows), feeds["x2"])
        return {"y1": data}

    return formula


@cases("ScatterElements")
def scatter_elements(form: Forms) -> Iterator[Case]:
    """New rows into a cache: the index stored or fed, from the end, in every type and rank."""
    rows = {
        kind: const(1, 2, 2, 8, dtype=kind, draw=exactly([[3], [5]])) for kind in ("int32", "int64")
    }
    cache, new = run(1, 2, 6, 8), run(1, 2, 2, 8)
    for dtype in FLOATS:
        for kind, index in rows.items():
            quick = (dtype, kind) == ("f32", "int64")
            yield form(f"constant {kind} index", dtype, cache, index, new, axis=2, quick=quick)
            yield form(f"run-time {kind} index", dtype, cache, fed(index), new, axis=2)
        last = const(1, 2, 2, 8, dtype="int64", draw=exactly([[-2], [-1]]))
        yield form("negative index", dtype, cache, last, new, axis=-2)

        def expanded(graph: Graph) -> Outputs:
            index = run(1, 1, 2, 1, dtype="int64", draw=exactly([[3], [5]]))
            whole = graph.op("Expand", index, value([1, 2, 2, 8]))
            return graph.op("ScatterElements", cache, whole, new, axis=2)

        yield form.graph("index from Expand", dtype, expanded)
        for reduction in REDUCTIONS if dtype == "f32" else ("max", "min"):
            yield form(f"reduction={reduction}", dtype, cache, rows["int64"], new, axis=2,
                       reduction=reduction, quick=(reduction, dtype) == ("add", "f32"))  # fmt: skip
    for dtype in INTEGERS:
        yield form("constant int64 index", dtype, cache, rows["int64"], new, axis=2,
                   quick=dtype == "int8")  # fmt: skip
    for dtype in (*FLOATS, "int32"):
        five = const(1, 2, 2, 2, 8, dtype="int64", draw=exactly([[3], [5]]))
        for what, index in (("constant", five), ("run-time", fed(five))):
            yield form(f"rank 5, {what} index", dtype, run(1, 2, 2, 6, 8), index,
                       run(1, 2, 2, 2, 8), axis=3,
                       quick=(what, dtype) == ("constant", "f32"))  # fmt: skip


@cases("ScatterND")
def scatter_nd(form: Forms) -> Iterator[Case]:
    """Rows into a cache, each once, or added up."""
    index = const(2, 1, dtype="int64", draw=exactly([[3], [5]]))
    for dtype in (*FLOATS, *INTEGERS):
        quick = dtype in {"f32", "int8"}
        yield form("constant index", dtype, run(6, 8), index, run(2, 8), quick=quick)
        yield form("run-time index", dtype, run(6, 8), fed(index), run(2, 8))
    for dtype in FLOATS:
        for reduction in REDUCTIONS:
            quick = dtype == "f32" and reduction in {"add", "max"}
            formula = scattered(reduction, 3, 5) if dtype == "f16" else None
            yield form(f"reduction={reduction}", dtype, run(6, 8), index, run(2, 8),
                       reduction=reduction, quick=quick, reference=formula)  # fmt: skip
        twice = const(2, 1, dtype="int64", draw=exactly([[3], [3]]))
        formula = scattered("add", 3, 3) if dtype == "f16" else None
        yield form("the same row twice, added", dtype, run(6, 8), twice, run(2, 8),
                   reduction="add", reference=formula)  # fmt: skip


@cases("TensorScatter")
def tensor_scatter(form: Forms) -> Iterator[Case]:
    """New rows into a cache, also around its end."""
    for dtype in FLOATS:
        for what, at, mode in (("rows", 3, "linear"), ("circular", 5, "circular")):
            start = run(1, dtype="int64", draw=exactly(at))
            yield form(what, dtype, run(1, 2, 6, 8), run(1, 2, 2, 8), start, axis=2, mode=mode,
                       opset=24, quick=(what, dtype) == ("rows", "f32"))  # fmt: skip
