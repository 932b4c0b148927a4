"""Ops of two elements: arithmetic, comparison, logic; types, ranks, constants, broadcasting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import (
    Draw,
    Operand,
    below,
    const,
    exactly,
    fed,
    run,
    uniform,
    value,
)

SHAPE, FIVE, SIX = (2, 3, 8), (1, 2, 2, 3, 8), (1, 1, 2, 2, 3, 8)
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
ODD_INTEGERS = ("int16", "uint16", "uint32", "uint64")


def divisor(dtype: str) -> Draw:
    """Numbers that are not 0; small ones, so that quotients of integers are not."""
    return uniform(0.5, 2) if dtype in {"f32", "f16", "f64", "bf16"} else below(4, 1)


def second(op: str, dtype: str, *shape: int) -> Operand:
    """The other operand, fed."""
    return run(*shape, draw=divisor(dtype) if op in {"Div", "Mod"} else None)


@cases(*ARITHMETIC)
def arithmetic(form: Forms) -> Iterator[Case]:
    """Both operands fed, one stored, and broadcasting at the highest ranks."""
    for dtype in (*FLOATS, *INTEGERS):
        b = second(form.op, dtype, *SHAPE)
        yield form("run-time", dtype, run(*SHAPE), b, quick=dtype in {"f32", "int64", "uint8"})
        scalar = const(draw=exactly(3))
        yield form("scalar constant", dtype, run(*SHAPE), scalar)
        if dtype in FLOATS:
            yield form("scalar constant first", dtype, scalar, b)
            rows = second(form.op, dtype, 1, 2, 1, 3, 1)
            yield form("rank 5 broadcast", dtype, run(*FIVE), rows)
            yield form("rank 6", dtype, run(*SIX), second(form.op, dtype, *SIX),
                       quick=form.op == "Add" and dtype == "f32")  # fmt: skip

    yield form("rank 5", "int64", run(*FIVE), second(form.op, "int64", *FIVE),
               quick=form.op == "Add")  # fmt: skip


@cases("Mod")
def modulo(form: Forms) -> Iterator[Case]:
    """Of both kinds; the sign of negative numbers is what differs between them."""
    for dtype in INTEGERS:
        yield form("run-time", dtype, run(*SHAPE), second("Mod", dtype, *SHAPE), fmod=0,
                   quick=dtype in {"int32", "uint8"})  # fmt: skip
        yield form("fmod", dtype, run(*SHAPE), second("Mod", dtype, *SHAPE), fmod=1)
    for dtype in FLOATS:
        yield form("fmod", dtype, run(*SHAPE), run(*SHAPE, draw=uniform(0.5, 2)), fmod=1,
                   quick=dtype == "f32")  # fmt: skip


@cases("Pow")
def power(form: Forms) -> Iterator[Case]:
    """Exponents of another type than the base are what exporters write."""
    base = run(*SHAPE, draw=uniform(0.5, 2))
    for dtype in FLOATS:
        other = "f16" if dtype == "f32" else "f32"
        yield form("square", dtype, run(*SHAPE), const(draw=exactly(2)), quick=dtype == "f32")
        yield form("run-time exponent", dtype, base, run(*SHAPE))
        yield form("rank 5", dtype, run(*FIVE, draw=uniform(0.5, 2)), const(draw=exactly(1.5)))
        for kind in (other, "int32", "int64"):
            yield form(
                f"exponent of {kind}", dtype, run(*SHAPE), value(2, kind), quick=kind != "int64"
            )
    for dtype in ("int32", "int64"):
        yield form("square", dtype, run(*SHAPE), const(draw=exactly(2)), quick=dtype == "int32")


@cases("Max", "Min", "Sum")
def many(form: Forms) -> Iterator[Case]:
    """Any number of operands; of one that is no input nothing would be left."""

    def alone(graph: Graph) -> Outputs:
        return graph.op(form.op, graph.op("Sigmoid", run(*SHAPE)))

    whole = () if form.op == "Sum" else INTEGERS
    for dtype in (*FLOATS, *whole):
        x, y = run(*SHAPE), run(*SHAPE)
        yield form("two", dtype, x, y, quick=dtype in {"f32", "uint8"})
        if dtype in FLOATS:
            yield form.graph("one", dtype, alone, quick=dtype == "f32")
            yield form("three", dtype, x, y, run(*SHAPE), quick=dtype == "f32")
            yield form("rank 5", dtype, run(*FIVE), run(*FIVE), quick=dtype == "f32")
    if whole:
        yield form("rank 5", "int64", run(*FIVE), run(*FIVE))


@cases(*COMPARISONS)
def comparison(form: Forms) -> Iterator[Case]:
    """Of every type, with a bool for the whole graph, or one that Where takes at once."""
    more = ("bool",) if form.op == "Equal" else ()
    odd = ODD_INTEGERS if form.op in {"Less", "LessOrEqual"} else ()
    for dtype in (*FLOATS, *INTEGERS, *odd, *more):
        draw = None if dtype not in FLOATS else below(4)
        yield form("alone", dtype, run(*SHAPE, draw=draw), run(*SHAPE, draw=draw),
                   quick=dtype in {"f32", "uint8", *more, "int16"})  # fmt: skip
    for dtype in (*FLOATS, "int32", "int64"):
        for what, shape in (("into Where", SHAPE), ("rank 5 into Where", FIVE)):

            def build(graph: Graph, shape: tuple[int, ...] = shape) -> Outputs:
                x, y = (graph.add(run(*shape, draw=below(4))) for _ in range(2))
                return graph.op("Where", graph.op(form.op, x, y), x, const(draw=exactly(7)))

            if dtype != "int64" or shape != FIVE:
                yield form.graph(what, dtype, build)


@cases("LessOrEqual")
def positions(form: Forms) -> Iterator[Case]:
    """Positions that float16 does not hold."""
    for dtype in ("int32", "int64"):
        places = run(1, 8, draw=exactly(np.arange(4088, 4096)))
        yield form("positions up to 4095", dtype, places, const(1, 1, draw=exactly(4093)))


@cases("And", "Or", "Xor")
def logic(form: Forms) -> Iterator[Case]:
    """Of booleans alone."""
    yield form("alone", "bool", run(*SHAPE), run(*SHAPE), quick=True)
    yield form("rank 5", "bool", run(*FIVE), run(*FIVE), quick=True)


@cases("BitShift")
def shift(form: Forms) -> Iterator[Case]:
    """The nibbles of bytes."""
    for dtype in ("uint8", "uint32"):
        yield form(
            "right",
            dtype,
            run(*SHAPE),
            const(draw=exactly(1)),
            direction="RIGHT",
            quick=dtype == "uint8",
        )


@cases("BitwiseAnd")
def bits(form: Forms) -> Iterator[Case]:
    """With a mask that is stored or fed."""
    for dtype in ("int32", "int64"):
        mask = const(draw=exactly(3))
        yield form("constant mask", dtype, run(*SHAPE), mask, quick=dtype == "int32")
        yield form("run-time mask", dtype, run(*SHAPE), fed(mask))
