"""Ops that pick elements by indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import WIDE
from rewriter.probe.graph import Graph
from rewriter.probe.operands import below, const, distinct, exactly, fed, run, value

TYPES = (*FLOATS, *INTEGERS, "bool")


@cases("Gather")
def gather(form: Forms) -> Iterator[Case]:
    """Rows of a table, and of what is fed."""
    for kind in ("int32", "int64"):
        index = run(2, 3, dtype=kind, draw=below(6))
        for dtype in FLOATS:
            yield form(f"constant table, {kind} index", dtype, const(6, 8), index)
            backwards = run(2, 3, dtype=kind, draw=below(6, -6))
            yield form(f"constant table, negative {kind} index", dtype, const(6, 8), backwards)
            table = run(2, 6, 8)
            yield form(f"axis 1, constant {kind} index", dtype, table, value([1, 3], kind), axis=1)
            yield form(f"axis 1, scalar {kind} index", dtype, table, value(2, kind), axis=1)
            yield form(f"axis 1, run-time {kind} index", dtype, table, index, axis=1)
            yield form(f"last axis, {kind} index", dtype, table, value([1, 3], kind), axis=-1)
    index = run(3, dtype="int64", draw=below(6))
    for dtype in TYPES:
        quick = dtype in {"f32", "int8", "int64"}
        yield form("run-time", dtype, run(6, 8), index, quick=quick)
    for dtype in (*FLOATS, "int32", "int64"):
        yield form("rank 5", dtype, run(1, 2, 6, 4, 8), index, axis=2)
        scalar = run(dtype="int64", draw=exactly(4))
        yield form("scalar run-time index", dtype, run(6, 8), scalar, quick=dtype == "int64")


@cases("Gather")
def int64_outputs(form: Forms) -> Iterator[Case]:
    """Of int64 data that is no input, into an output or another node."""
    index = run(3, dtype="int64", draw=below(6))
    for inside in (False, True):

        def build(graph: Graph, inside: bool = inside) -> Outputs:
            data = graph.op("Add", run(6, 8), value(1))
            picked = graph.op("Gather", data, index)
            return graph.op("Reshape", picked, value([-1])) if inside else picked

        what = "computed data, inside" if inside else "computed data, output"
        yield form.graph(what, "int64", build, quick=True)
    yield form("constant data, output", "int64", const(6, 8), index)


@cases("GatherElements")
def gather_elements(form: Forms) -> Iterator[Case]:
    """Stored and fed indices, negative ones too."""
    for dtype in TYPES:
        index = const(2, 3, 8, dtype="int64", draw=below(6))
        quick = dtype in {"f32", "int8"}
        yield form("constant index", dtype, run(2, 6, 8), index, axis=1, quick=quick)
        yield form("run-time index", dtype, run(2, 6, 8), fed(index), axis=1)
    for dtype in FLOATS:
        backwards = const(2, 3, 8, dtype="int64", draw=below(6, -6))
        yield form("negative index", dtype, run(2, 6, 8), backwards, axis=1)
        short = run(2, 3, 8, dtype="int32", draw=below(6))
        yield form("run-time int32 index", dtype, run(2, 6, 8), short, axis=1)


@cases("GatherND")
def gather_nd(form: Forms) -> Iterator[Case]:
    """With a batch and without."""
    for dtype in TYPES:
        index = const(4, 2, dtype="int64", draw=below(3))
        quick = dtype in {"f32", "int64"}
        yield form("constant index", dtype, run(3, 4, 8), index, quick=quick)
        yield form("run-time index", dtype, run(3, 4, 8), fed(index))
    for dtype in WIDE:
        index = run(3, 2, 1, dtype="int64", draw=below(4))
        yield form("batch_dims=1", dtype, run(3, 4, 8), index, batch_dims=1, quick=dtype == "f32")


@cases("com.microsoft::GatherBlockQuantized")
def gather_blocks(form: Forms) -> Iterator[Case]:
    """An embedding in blocks: packed bytes or types of 4 bits, with zero points and without."""
    index = run(2, 3, dtype="int64", draw=below(6))
    sizes: dict[str, Any] = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32}
    for dtype in FLOATS:
        scales = const(6, 2)
        tables = {
            "4 bits in bytes": (const(6, 32, dtype="uint8", draw=below(256)), 4, (6, 1), "uint8"),
            "8 bits in bytes": (const(6, 64, dtype="uint8", draw=below(256)), 8, (6, 2), "uint8"),
            "int4": (const(6, 64, dtype="int4"), 4, (6, 2), "int4"),
            "uint4": (const(6, 64, dtype="uint4"), 4, (6, 2), "uint4"),
        }
        for what, (table, bits, shape, kind) in tables.items():
            quick = what == "4 bits in bytes"
            points = const(*shape, dtype=kind, draw=below(256) if kind == "uint8" else None)
            yield form(what, dtype, table, index, scales, bits=bits, quick=quick, **sizes)
            yield form(f"{what}, zero points", dtype, table, index, scales, points, bits=bits,
                       **sizes)  # fmt: skip
            if kind == "uint8":
                yield form(f"{what}, run-time table", dtype, fed(table), index, scales, bits=bits,
                           quick=quick, **sizes)  # fmt: skip


@cases("OneHot")
def one_hot(form: Forms) -> Iterator[Case]:
    """Values of every type."""
    for dtype in (*FLOATS, "int64"):
        index = run(2, 3, dtype="int64", draw=distinct(5))
        values = const(2, draw=exactly([0, 1]))
        yield form("last axis", dtype, index, value(5), values, axis=-1, quick=dtype != "int64")
