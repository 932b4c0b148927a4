"""Ops of one element: their ranks and types, and what stands around the odd ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rewriter.probe.case import FLOATS, INTEGERS, Case, Forms, Outputs, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import Draw, const, exactly, run, scaled, uniform, value

SHAPES = {1: (8,), 2: (3, 8), 3: (2, 3, 8), 4: (1, 2, 3, 8), 5: (1, 2, 2, 3, 8)}
"""One of each rank that HTP has."""
TIES = [0.5, 1.5, 2.5, -0.5, -1.5, 2.0009766, 1.0004883, 3.4998]
"""For Round: halves, and numbers that become halves, or stay away from them, in float16."""


@dataclass(frozen=True)
class Unary:
    """How an op is probed: on which numbers, from which opset on, in which types."""

    draw: Draw | None = None
    opset: int = 21
    dtypes: tuple[str, ...] = FLOATS
    attributes: dict[str, Any] = field(default_factory=dict)


POSITIVE = uniform(0.5, 2)
SINGLE = ("f32",)  # without a kernel of ONNX Runtime in float16
UNARY = {
    "Abs": Unary(),
    "Atan": Unary(),
    "Ceil": Unary(),
    "Celu": Unary(dtypes=SINGLE),
    "Cos": Unary(),
    "Elu": Unary(),
    "Erf": Unary(),
    "Exp": Unary(),
    "Floor": Unary(),
    "Gelu": Unary(),
    "HardSigmoid": Unary(scaled(3)),
    "HardSwish": Unary(scaled(3)),
    "Identity": Unary(),
    "IsInf": Unary(exactly([0, 1, np.inf, -np.inf, 2, -3, 0.5, 7])),
    "IsNaN": Unary(exactly([0, 1, np.nan, -np.inf, 2, np.nan, 0.5, np.inf])),
    "LeakyRelu": Unary(),
    "Log": Unary(POSITIVE),
    "Mish": Unary(),
    "Neg": Unary(),
    "Not": Unary(dtypes=("bool",)),
    "Reciprocal": Unary(POSITIVE),
    "Relu": Unary(),
    "Round": Unary(exactly(TIES)),
    "Selu": Unary(),
    "Sigmoid": Unary(),
    "Sign": Unary(),
    "Sin": Unary(),
    "Sinh": Unary(dtypes=SINGLE),
    "Softplus": Unary(),
    "Softsign": Unary(dtypes=SINGLE),
    "Sqrt": Unary(POSITIVE),
    "Swish": Unary(opset=24),
    "Tanh": Unary(),
}


@cases(*UNARY)
def ranks(form: Forms) -> Iterator[Case]:
    """Every rank, alone in the graph."""
    how = UNARY[form.op]
    for dtype in how.dtypes:
        for rank, shape in SHAPES.items():
            yield form(f"rank {rank}", dtype, run(*shape, draw=how.draw), opset=how.opset,
                       quick=rank in (3, 5), **how.attributes)  # fmt: skip


NO_KERNEL = {("Neg", "uint8"), ("Relu", "uint8"), ("Relu", "int64")}


@cases("Abs", "Neg", "Relu", "Sign", "Identity")
def integers(form: Forms) -> Iterator[Case]:
    """Types that are no floats; there is no negative of what has no sign."""
    booleans = ("bool",) if form.op == "Identity" else ()
    for dtype in (*INTEGERS, *booleans):
        if (form.op, dtype) not in NO_KERNEL:
            yield form("alone", dtype, run(2, 3, 8), quick=True)


@cases("Mish", "Softplus")
def neighbours(form: Forms) -> Iterator[Case]:
    """A node whose input, output or both are not the graph's own."""
    for dtype in FLOATS:
        for before, behind in ((False, True), (True, False), (True, True)):

            def build(graph: Graph, before: bool = before, behind: bool = behind) -> Outputs:
                x = graph.add(run(2, 3, 8))
                y = graph.op(form.op, graph.op("Relu", x) if before else x)
                return graph.op("Sigmoid", y) if behind else y

            what = "between other nodes" if before and behind else "before another node"
            yield form.graph(what if behind else "behind another node", dtype, build,
                             quick=before != behind)  # fmt: skip


@cases("Not", "And", "Or", "Xor")
def logic_inside(form: Forms) -> Iterator[Case]:
    """Booleans that are made and used inside the graph."""

    def build(graph: Graph) -> Outputs:
        x = graph.add(run(2, 3, 8, dtype="f32"))
        seen = [graph.op("Greater", x, value(bound, "f32")) for bound in (0.0, 0.5)]
        made = graph.op(form.op, *seen[: 1 if form.op == "Not" else 2])
        return graph.op("Where", made, x, value(2.0, "f32"))

    yield form.graph("inside", "bool", build)


@cases("Sin", "Cos")
def angles(form: Forms) -> Iterator[Case]:
    """Of token positions, and of the same angles given as floats."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            positions = run(1, 8, 1, dtype="int64", draw=exactly(np.arange(4088, 4096)[:, None]))
            kind = int(graph.dtype.value)
            places = graph.op("Cast", graph.add(positions), to=kind)
            rates = const(1, 1, 8, draw=exactly(10000.0 ** -np.linspace(0, 1, 8)))
            return graph.op(form.op, graph.op("Mul", places, rates))

        yield form.graph("of positions up to 4095", dtype, build, quick=True)


@cases("Gelu")
def gelu(form: Forms) -> Iterator[Case]:
    """The form with a tanh."""
    for dtype in FLOATS:
        yield form("approximate=tanh", dtype, run(2, 3, 8), approximate="tanh")


@cases("Clip")
def clip(form: Forms) -> Iterator[Case]:
    """Bounds that are stored, fed, or not there."""
    low, high = const(draw=exactly(-1)), const(draw=exactly(1))
    for dtype in (*FLOATS, *INTEGERS):
        bounds = (
            (low, high) if dtype != "uint8" else (const(draw=exactly(2)), const(draw=exactly(9)))
        )
        yield form("constant bounds", dtype, run(2, 3, 8), *bounds, quick=dtype != "f16")
    for dtype in FLOATS:
        yield form("only min", dtype, run(2, 3, 8), low)
        yield form("run-time min", dtype, run(2, 3, 8), run(draw=exactly(-1)), quick=True)
        yield form("run-time max", dtype, run(2, 3, 8), low, run(draw=exactly(1)), quick=True)
        yield form("rank 5", dtype, run(1, 2, 2, 3, 8), low, high)


@cases("PRelu")
def prelu(form: Forms) -> Iterator[Case]:
    """A slope that is stored or fed."""
    for dtype in FLOATS:
        yield form("constant slope", dtype, run(2, 3, 8), const(8), quick=dtype == "f32")
        yield form("run-time slope", dtype, run(2, 3, 8), run(8))


@cases("Dropout")
def dropout(form: Forms) -> Iterator[Case]:
    """As it is left in models: it does nothing."""
    for dtype in FLOATS:

        def build(graph: Graph) -> Outputs:
            return graph.op("Relu", graph.op("Dropout", graph.op("Sigmoid", run(2, 3, 8))))

        yield form.graph("inference", dtype, build, quick=dtype == "f32")
