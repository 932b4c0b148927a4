"""Softmax and its like: every rank, axes that are not the last, large scores, masks."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from rewriter.probe.case import FLOATS, Case, Forms, cases
from rewriter.probe.graph import Graph
from rewriter.probe.operands import causal, run, scaled

_SHAPES = ((8,), (4, 8), (2, 4, 8), (1, 2, 4, 8), (1, 2, 2, 4, 8))


@cases("Softmax", "LogSoftmax")
def softmax(form: Forms) -> Iterator[Case]:
    """By rank and axis; before opset 13 the axes from one on were flattened."""
    for dtype in FLOATS:
        quick = dtype == "f32"
        for shape in _SHAPES:
            yield form(f"rank {len(shape)}", dtype, run(*shape), axis=-1,
                       quick=quick and len(shape) in {4, 5})  # fmt: skip
        yield form("axis 1 of 3", dtype, run(2, 4, 8), axis=1, quick=quick)
        yield form("default axis", dtype, run(2, 4, 8))
        yield form("flattened, opset 11", dtype, run(2, 4, 8), axis=1, opset=11, quick=quick)
        yield form("last axis, opset 11", dtype, run(2, 4, 8), axis=2, opset=11)
        yield form("of large scores", dtype, run(2, 4, 8, draw=scaled(16)), axis=-1)
    yield form("alone", "f64", run(2, 4, 8), axis=-1)


@cases("Softmax")
def masked(form: Forms) -> Iterator[Case]:
    """Of scores that a mask was added to."""
    for hidden in (-1e4, -255.0):

        def scores(g: Graph, hidden: float = hidden) -> ir.Value:
            mask = run(1, 1, 4, 8, draw=causal(hidden))
            return g.op("Softmax", g.op("Add", run(1, 2, 4, 8), mask), axis=-1)

        for dtype in FLOATS:
            yield form.graph(f"after a mask of {hidden:g}", dtype, scores)
