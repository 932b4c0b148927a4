"""Ops that make one element of many, and those that count or order them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import inside, shaped
from rewriter.probe.graph import Graph
from rewriter.probe.operands import distinct, exactly, fed, run, uniform, value

PLAIN = (
    "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
WHOLE = {
    "ReduceMax": INTEGERS,
    "ReduceMean": ("int32", "int64"),
    "ReduceMin": ("int32", "int64"),
    "ReduceSum": ("int32", "int64"),
}
RANK_4 = {"ReduceL2", "ReduceLogSumExp"}
LAST, SHAPE = value([-1]), (2, 3, 8)


@cases(*PLAIN)
def reduced(form: Forms) -> Iterator[Case]:
    """The axes stored, fed, left out; every rank that matters."""
    draw = uniform(0.5, 1.5)
    for dtype in FLOATS:
        yield form("last axis", dtype, run(*SHAPE, draw=draw), LAST, quick=True)
        yield form("last axis, keepdims=0", dtype, run(*SHAPE, draw=draw), LAST, keepdims=0)
        yield form("axis 1", dtype, run(*SHAPE, draw=draw), value([1]))
        yield form("two axes", dtype, run(*SHAPE, draw=draw), value([1, 2]))
        five = run(1, 2, 2, 3, 8, draw=draw)
        yield form("rank 5", dtype, five, LAST, quick=dtype == "f32" and form.op in RANK_4)
        unfolded = dtype == "f16" and form.op in {"ReduceL1", "ReduceSumSquare"}
        yield form("no axes", dtype, run(*SHAPE, draw=draw), quick=unfolded)
        if form.op in WHOLE:
            yield form("axes attribute", dtype, run(*SHAPE, draw=draw), axes=[-1], opset=11)

            def build(graph: Graph) -> Outputs:
                return shaped(graph.op(form.op, run(*SHAPE), fed(LAST)), 2, 3, 1)

            yield form.graph("run-time axes", dtype, build, quick=dtype == "f32")
    for dtype in WHOLE.get(form.op, ()):
        yield form("last axis", dtype, run(*SHAPE), LAST, quick=dtype in {"int32", "int8"})
        if dtype in {"int32", "int64"}:
            yield from inside(form, "last axis inside", (dtype,), SHAPE, LAST)


@cases("ReduceSum")
def sums(form: Forms) -> Iterator[Case]:
    """The attribute for no axes, and a sum that float16 does not hold."""
    for dtype in FLOATS:
        yield form(
            "noop_with_empty_axes", dtype, run(*SHAPE), noop_with_empty_axes=1, quick=dtype == "f32"
        )
    for dtype in ("int32", "int64"):
        ones = run(1, 4096, draw=exactly(1))
        yield form("of 4096 ones", dtype, ones, LAST)


@cases("ArgMax", "ArgMin")
def largest(form: Forms) -> Iterator[Case]:
    """The first and the last of equal ones."""
    for dtype in (*FLOATS, "int32", "int64"):
        apart = run(*SHAPE, draw=distinct(8))
        yield form("last axis", dtype, apart, axis=-1, quick=dtype in {"f32", "int32"})
    for dtype in FLOATS:
        ties = run(2, 4, draw=exactly([[1, 3, 3, 0], [2, 0, 0, 2]]))
        yield form("ties", dtype, ties, axis=-1)
        yield form("select_last_index", dtype, ties, axis=-1, select_last_index=1,
                   quick=dtype == "f32")  # fmt: skip


@cases("CumSum")
def running(form: Forms) -> Iterator[Case]:
    """Backwards, without the element itself, along an axis that is fed."""
    last = value(2)
    for dtype in (*FLOATS, "int32", "int64"):
        yield form("last axis", dtype, run(*SHAPE), last, quick=dtype == "f32")
    for dtype in FLOATS:
        quick = dtype == "f32"
        yield form("reverse", dtype, run(*SHAPE), last, reverse=1, quick=quick)
        yield form("exclusive", dtype, run(*SHAPE), last, exclusive=1, quick=quick)
        yield form("run-time axis", dtype, run(*SHAPE), fed(last), quick=quick)


@cases("TopK")
def top(form: Forms) -> Iterator[Case]:
    """Values and places; no two are equal."""
    for dtype in (*FLOATS, "int32", "int64"):
        apart = run(*SHAPE, draw=distinct(8))
        yield form("4 of 8", dtype, apart, value([4]), outputs=2, quick=dtype == "f32")
    for dtype in FLOATS:
        apart = run(*SHAPE, draw=distinct(8))
        yield form("the smallest", dtype, apart, value([4]), outputs=2, largest=0)
        middle = run(
            2, 3, 8, draw=lambda rng, shape: rng.permutation(np.arange(48.0)).reshape(shape)
        )
        yield form("axis 1", dtype, middle, value([2]), outputs=2, axis=1)

        def build(graph: Graph) -> Outputs:
            found = graph.ops("TopK", [run(*SHAPE, draw=distinct(8)), fed(value([4]))], {}, 2)
            return [shaped(one, 2, 3, 4) for one in found]

        yield form.graph("run-time K", dtype, build, quick=dtype == "f32")
