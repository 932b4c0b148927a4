"""Ops that cut tensors, join them and fill their edges."""

from __future__ import annotations

from collections.abc import Iterator

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import WIDE, inside, shaped
from rewriter.probe.graph import Graph
from rewriter.probe.operands import const, exactly, fed, run, value

TYPES = (*FLOATS, *INTEGERS, "bool")
SHAPE, FIVE = (2, 4, 8), (1, 2, 2, 4, 8)


@cases("Concat")
def concat(form: Forms) -> Iterator[Case]:
    """Of what is fed, with what is stored, at the highest rank."""
    for dtype in TYPES:
        quick = dtype in {"f32", "int8"}
        yield form("axis 1", dtype, run(*SHAPE), run(2, 1, 8), axis=1, quick=quick)
        yield form("last axis with a constant", dtype, run(*SHAPE), const(2, 4, 2), axis=-1)
    for dtype in (*FLOATS, "int32", "int64"):
        yield form("rank 5", dtype, run(*FIVE), run(*FIVE), axis=3, quick=dtype == "int64")
        yield form("three", dtype, run(*SHAPE), run(*SHAPE), run(*SHAPE), axis=0)
    yield from inside(form, "rank 5 inside", WIDE, FIVE, const(*FIVE), axis=3)


@cases("Concat", "ReduceSum", "ReduceMax")
def empty(form: Forms) -> Iterator[Case]:
    """A cache before the first token, and what is summed over nothing."""
    none = run(1, 2, 0, 8)
    if form.op == "Concat":
        yield form("empty past", "f32", none, run(1, 2, 4, 8), axis=2, quick=True)
    elif form.op == "ReduceSum":

        def summed(graph: Graph) -> Outputs:
            return graph.op("Add", run(1, 2, 1, 8), graph.op("ReduceSum", none, value([2])))

        yield form.graph("empty", "f32", summed, quick=True)
    else:
        yield form("empty", "f32", run(1, 2, 0, 8), value([3]), quick=True)


@cases("Split")
def split(form: Forms) -> Iterator[Case]:
    """Into equal parts by number, and into others by stored and fed sizes."""
    for dtype in TYPES:
        sizes = {"constant sizes": [4, 4], "unequal parts": [3, 5]}
        for what, parts in sizes.items():
            quick = what == "constant sizes" and dtype in {"f32", "int8"}
            yield form(what, dtype, run(*SHAPE), value(parts), axis=2, outputs=2, quick=quick)
        yield form("num_outputs", dtype, run(*SHAPE), axis=2, num_outputs=2, outputs=2)
    for dtype in WIDE:

        def build(graph: Graph) -> Outputs:
            parts = graph.ops("Split", [run(*SHAPE), fed(value([3, 5]))], {"axis": 2}, 2)
            return [shaped(part, 2, 4, size) for part, size in zip(parts, (3, 5), strict=True)]

        yield form.graph("run-time sizes", dtype, build, quick=dtype == "f32")
    for dtype in (*FLOATS, "int64"):
        yield form("rank 5", dtype, run(*FIVE), value([4, 4]), axis=4, outputs=2)


@cases("Slice")
def cut(form: Forms) -> Iterator[Case]:
    """Bounds that are stored or fed, steps, bounds from the end."""
    bounds = {
        "constant bounds": ([1], [3], [1], [1]),
        "step 2": ([0], [4], [1], [2]),
        "step -1": ([7], [-9], [2], [-1]),
        "bounds from the end": ([-3], [-1], [2], [1]),
    }
    for what, (start, end, axis, step) in bounds.items():
        for dtype in TYPES:
            yield form(
                what,
                dtype,
                run(*SHAPE),
                *map(value, (start, end, axis, step)),
                quick=what == "constant bounds" and dtype in {"f32", "int8", "bool"},
            )
    for rank, shape in {"rank 2": (4, 8), "rank 3": (2, 4, 8), "rank 4": (1, 2, 4, 8)}.items():
        for dtype in (*FLOATS, "int32", "int64"):
            given = [value([number]) for number in (1, 8, -1, 2)]
            quick = (rank, dtype) == ("rank 3", "int32")
            yield form(f"{rank}, last axis, step 2", dtype, run(*shape), *given, quick=quick)
    for word in ("start", "end"):
        for dtype in WIDE:

            def build(graph: Graph, word: str = word) -> Outputs:
                given = {"start": value([1]), "end": value([3])}
                given[word] = fed(given[word])
                cut_out = graph.op("Slice", run(*SHAPE), *given.values(), value([1]))
                return shaped(cut_out, 2, 2, 8)

            yield form.graph(f"run-time {word}", dtype, build, quick=dtype == "f32")
    for dtype in (*FLOATS, "int32", "int64"):
        yield form("rank 5", dtype, run(*FIVE), value([1]), value([3]), value([3]))
    yield from inside(form, "inside", ("bool",), SHAPE, value([1]), value([3]), value([1]))


PADS = value([0, 0, 1, 0, 0, 2])


@cases("Pad")
def pad(form: Forms) -> Iterator[Case]:
    """Every mode; pads that are fed, or cut off."""
    for dtype in (*FLOATS, "int32", "int64", "bool"):
        quick = dtype not in {"f16", "int64"}
        yield form("with nothing", dtype, run(2, 4, 8), PADS, quick=quick)
    for dtype in FLOATS:
        for mode in ("reflect", "edge", "wrap"):
            yield form(f"mode={mode}", dtype, run(2, 4, 8), PADS, mode=mode, quick=dtype == "f32")
        five = value([0] * 9 + [2])
        yield form("rank 5", dtype, run(*FIVE), five)
        yield form("cut off", dtype, run(2, 4, 8), value([0, 0, -1, 0, 0, 2]))
        zero, filled = const(draw=exactly(0)), const(draw=exactly(5))
        yield form("with 0", dtype, run(2, 4, 8), PADS, zero)
        yield form("with a run-time value", dtype, run(2, 4, 8), PADS, fed(filled), quick=True)

        def flowing(graph: Graph) -> Outputs:
            return shaped(graph.op("Pad", run(2, 4, 8), fed(PADS)), 2, 4, 11)

        yield form.graph("run-time pads", dtype, flowing, quick=dtype == "f32")


@cases("Pad")
def padded_with_a_value(form: Forms) -> Iterator[Case]:
    """Beside the ops in whose company HTP loses the value."""
    for dtype in FLOATS:
        for behind in ("Relu", "Softmax"):

            def build(graph: Graph, behind: str = behind) -> Outputs:
                made = graph.op("Pad", run(1, 4, 6), value([0] * 5 + [2]), const(draw=exactly(5)))
                return graph.op(behind, made)

            yield form.graph(f"with 5 before {behind}", dtype, build, quick=behind == "Relu")
