"""Normalizations: ranks, axes, statistics, weights that are fed, and one that is written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rewriter.probe.case import FLOATS, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import without
from rewriter.probe.graph import Graph
from rewriter.probe.operands import const, exactly, run, uniform, value

SHAPES = {1: (8,), 2: (3, 8), 3: (1, 3, 8), 4: (1, 2, 3, 8), 5: (1, 2, 2, 3, 8)}
ROOT = {"RMSNormalization": 23, "SimplifiedLayerNormalization": 21}
"""Of the mean square; the opset each is written in."""


@cases(*ROOT)
def root_mean_square(form: Forms) -> Iterator[Case]:
    """Every rank; weights of the last axis, or of all behind an axis."""
    opset = ROOT[form.op]
    for dtype in FLOATS:
        for rank, shape in SHAPES.items():
            yield form(f"rank {rank}", dtype, run(*shape), const(8), axis=-1, opset=opset,
                       quick=rank in {3, 5})  # fmt: skip
        x = run(1, 3, 8)
        yield form("axis 1", dtype, x, const(3, 8), axis=1, opset=opset, quick=dtype == "f32")
        yield form("run-time scale", dtype, x, run(8), axis=-1, opset=opset)
        yield form("epsilon 1e-6", dtype, run(1, 4, 64), const(64), axis=-1, epsilon=1e-6,
                   opset=opset)  # fmt: skip
        if form.op == "SimplifiedLayerNormalization":
            yield form("statistics", dtype, x, const(8), axis=-1, outputs=2, quick=dtype == "f32")
            yield form("free seq", dtype, run(1, "seq", 8), const(8), axis=-1)


@cases("LayerNormalization")
def layer(form: Forms) -> Iterator[Case]:
    """Every rank, with a bias and without, and the statistics."""
    for dtype in FLOATS:
        quick = dtype == "f32"
        for rank, shape in SHAPES.items():
            yield form(f"rank {rank}", dtype, run(*shape), const(8), const(8), axis=-1,
                       quick=quick and rank in {3, 5})  # fmt: skip
        x = run(1, 3, 8)
        yield form("no bias", dtype, x, const(8), axis=-1)
        yield form("axis 1", dtype, x, const(3, 8), const(3, 8), axis=1, quick=quick)
        yield form("run-time scale", dtype, x, run(8), run(8), axis=-1)
    weights = const(8), const(8)
    yield form("mean", "f32", run(1, 3, 8), *weights, axis=-1, outputs=2, quick=True)
    yield form("mean and deviation", "f32", run(1, 3, 8), *weights, axis=-1, outputs=3, quick=True)


@cases("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization")
def skip(form: Forms) -> Iterator[Case]:
    """The sum as another output, biases, a skip that is broadcast."""
    weights = [const(8), const(8)][: 1 if "Simplified" in form.op else 2]
    beta_absent = [] if "Simplified" in form.op else [None]
    x = run(2, 3, 8)
    eps: dict[str, Any] = {"epsilon": 1e-5}
    for dtype in FLOATS:
        yield form("plain", dtype, x, x, *weights, quick=dtype == "f32", **eps)
        yield form("bias", dtype, x, x, *weights, const(8), **eps)
        for what, other in (("2-D skip", run(3, 8)), ("skip of 1 sequence", run(1, 3, 8))):
            yield form(what, dtype, x, other, *weights, **eps)
        if beta_absent:
            yield form("no beta", dtype, x, x, weights[0], *beta_absent, **eps)

        def with_sum(graph: Graph) -> Outputs:
            return without(graph.ops(form.op, [x, x, *weights], eps, 4), 1, 2)

        yield form.graph("sum", dtype, with_sum, quick=dtype == "f32")
    if not beta_absent:
        return
    for what, left in {"mean": (2, 3), "deviation": (1, 3)}.items():

        def statistics(graph: Graph, left: tuple[int, ...] = left) -> Outputs:
            return without(graph.ops(form.op, [x, x, *weights], eps, 4), *left)

        yield form.graph(what, "f32", statistics)


@cases("GroupNormalization")
def group(form: Forms) -> Iterator[Case]:
    """Groups of 2 channels."""
    for dtype in FLOATS:
        x = run(2, 8, 3, 4)
        yield form("4 groups", dtype, x, const(8), const(8), num_groups=4, quick=dtype == "f32")


@cases("InstanceNormalization")
def instance(form: Forms) -> Iterator[Case]:
    """Images."""
    for dtype in FLOATS:
        yield form("rank 4", dtype, run(2, 3, 4, 5), const(3), const(3), quick=dtype == "f32")


@cases("LpNormalization")
def length(form: Forms) -> Iterator[Case]:
    """Of vectors."""
    for dtype in FLOATS:
        yield form("last axis", dtype, run(2, 3, 8), axis=-1, p=2, quick=dtype == "f32")


WEIGHTS = {
    "scalar weight": (),
    "weight of one element": (1,),
    "column of weights": (1, 3, 1),
    "weights of the last axis": (8,),
}


@cases("Mul")
def written_out(form: Forms) -> Iterator[Case]:
    """X times the root of its mean square, as torch.onnx writes it, and in the other order."""
    for dtype in FLOATS:
        for last in (True, False):
            for what, shape in WEIGHTS.items():

                def build(
                    graph: Graph, last: bool = last, shape: tuple[int, ...] = shape
                ) -> Outputs:
                    x = graph.add(run(1, 3, 8))
                    square = graph.op("Pow", x, const(draw=exactly(2)))
                    mean = graph.op("ReduceMean", square, value([-1]))
                    sum_ = graph.op("Add", mean, const(draw=exactly(1e-3)))
                    root = graph.op("Sqrt", sum_)
                    inverse = graph.op("Reciprocal", root)
                    normal = graph.op("Mul", x, inverse) if last else graph.op("Mul", inverse, x)
                    return graph.op("Mul", normal, const(*shape, draw=uniform(1, 3)))

                words = f"norm written out, root {'last' if last else 'first'}, {what}"
                shows = not last or what != "weights of the last axis"
                if shows:
                    quick = last and (what, dtype) == ("scalar weight", "f32")
                    yield form.graph(words, dtype, build, unit=0, quick=quick)
