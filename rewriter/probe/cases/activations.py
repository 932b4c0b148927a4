"""Ops between DequantizeLinear and QuantizeLinear, as calibrated graphs have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from rewriter.probe.case import OPSET, Case, Forms, Outputs, cases
from rewriter.probe.cases.dequantize import ACTIVATIONS
from rewriter.probe.cases.matmul_nbits import NBITS, sizes, weights
from rewriter.probe.graph import Given, Graph
from rewriter.probe.operands import Operand, below, const, exactly, run, uniform, value

SHAPE = (2, 3, 8)
X, HEADS = run(*SHAPE), run(1, 2, 4, 8)
RANGE = 4.0
"""The largest number that codes stand for; HTP does not cut off what an op gives beyond it."""
LARGEST = {
    "Add": 8.0, "LayerNormalization": 16.0, "MatMul": 16.0, "Mul": 16.0, "ReduceSum": 16.0,
    "Sub": 8.0,
    "2 bits": 16.0, "4 bits": 128.0, "8 bits": 1024.0,
}  # fmt: skip
FRACTIONS = {"Sigmoid", "Softmax"}
"""Their codes reach from 0 to 1: HTP computes no others."""
WEIGHT = const(8, dtype="uint8", draw=below(256))
INDEX = const(1, 2, 2, 8, dtype="int64", draw=exactly([[3], [5]]))
TURN = const(1, 4, 4, draw=uniform(-1, 1))
NEW_OPSET = {"RMSNormalization": 23, "RotaryEmbedding": 23}

OPERANDS: dict[str, tuple[list[Given], dict[str, Any], int]] = {
    "Add": ([X, X], {}, 1),
    "Clip": ([X, const(draw=exactly(-1)), const(draw=exactly(1))], {}, 1),
    "Concat": ([X, X], {"axis": 1}, 1),
    "Div": ([X, run(*SHAPE, draw=uniform(1, 2))], {}, 1),
    "Expand": ([run(2, 1, 8), value([2, 3, 8])], {}, 1),
    "Gather": ([run(6, 8), value([1, 3, 0])], {}, 1),
    "Gelu": ([X], {}, 1),
    "LayerNormalization": ([X, WEIGHT, WEIGHT], {"axis": -1}, 1),
    "MatMul": ([HEADS, run(1, 2, 8, 8)], {}, 1),
    "Mul": ([X, X], {}, 1),
    "Neg": ([X], {}, 1),
    "RMSNormalization": ([X, const(8)], {"axis": -1}, 1),
    "ReduceMean": ([X, value([-1])], {}, 1),
    "ReduceSum": ([X, value([-1])], {}, 1),
    "Relu": ([X], {}, 1),
    "Reshape": ([X, value([6, 8])], {}, 1),
    "RotaryEmbedding": ([HEADS, TURN, TURN], {}, 1),
    "ScatterElements": ([run(1, 2, 6, 8), INDEX, run(1, 2, 2, 8)], {"axis": 2}, 1),
    "Sigmoid": ([X], {}, 1),
    "Slice": ([X, value([1]), value([3]), value([1])], {}, 1),
    "Softmax": ([X], {"axis": -1}, 1),
    "Split": ([X, value([4, 4])], {"axis": 2}, 2),
    "Sqrt": ([run(*SHAPE, draw=uniform(0.5, 2))], {}, 1),
    "Squeeze": ([run(2, 1, 8), value([1])], {}, 1),
    "Sub": ([X, X], {}, 1),
    "Tanh": ([X], {}, 1),
    "Transpose": ([X], {"perm": [0, 2, 1]}, 1),
    "Unsqueeze": ([X, value([1])], {}, 1),
    "Where": ([run(*SHAPE, dtype="bool"), X, X], {}, 1),
}


def scale(kind: str, op: str = "") -> tuple[Operand, Operand]:
    """Scale and zero point of codes for what an op reads, or of a named op for what it gives."""
    highest = ACTIVATIONS[kind]
    if op in FRACTIONS:
        return value(1 / (highest + 1), "f32"), value(0, kind)
    middle = 0 if kind[0] == "i" else (highest + 1) // 2
    return value(LARGEST.get(op, RANGE) / (highest + 1 - middle), "f32"), value(middle, kind)


def coded(graph: Graph, given: Given, kind: str, op: str = "") -> ir.Value:
    """Floats that were codes."""
    codes = graph.op("QuantizeLinear", given, *scale(kind, op))
    return graph.op("DequantizeLinear", codes, *scale(kind, op))


def between(graph: Graph, op: str, kind: str) -> Outputs:
    """The op on floats that were codes, and that become codes; neither are the graph's own."""
    operands, attributes, outputs = OPERANDS[op]
    given: list[Given] = []
    for operand in operands:
        if operand is WEIGHT:
            given.append(graph.op("DequantizeLinear", operand, *scale("uint8")))
        elif isinstance(operand, Operand) and not operand.stored and not operand.dtype:
            given.append(coded(graph, graph.op("Abs", operand), kind))
        else:
            given.append(operand)
    made = graph.ops(op, given, attributes, outputs)
    return [graph.op("Abs", coded(graph, output, kind, op)) for output in made]


@cases(*OPERANDS)
def quantized(form: Forms) -> Iterator[Case]:
    """By the type of the codes."""
    for kind in ("uint16", "uint8", *(["int16"] if form.op == "MatMul" else [])):

        def build(graph: Graph, kind: str = kind) -> Outputs:
            return between(graph, form.op, kind)

        quick = kind == "uint16" or (form.op, kind) == ("MatMul", "int16")
        opset = NEW_OPSET.get(form.op, OPSET)
        yield form.graph(f"between codes of {kind}", "f32", build, opset=opset, quick=quick)


@cases(NBITS)
def blocks(form: Forms) -> Iterator[Case]:
    """A weight in blocks."""
    for bits in (2, 4, 8):
        for kind in ("uint16", "uint8"):

            def build(graph: Graph, bits: int = bits, kind: str = kind) -> Outputs:
                a = coded(graph, graph.op("Abs", run(1, 5, 64)), kind)
                y = graph.op(NBITS, a, *weights(bits, 32), **sizes(bits, 32))
                return graph.op("Abs", coded(graph, y, kind, f"{bits} bits"))

            what = f"{bits} bits, between codes of {kind}"
            yield form.graph(what, "f32", build, quick=bits == 4)


@cases("DequantizeLinear")
def constants(form: Forms) -> Iterator[Case]:
    """A constant of the codes' own type, added to them."""
    for kind in ("uint16", "uint8"):

        def build(graph: Graph, kind: str = kind) -> Outputs:
            a = coded(graph, graph.op("Abs", X), kind)
            stored = const(8, dtype=kind, draw=below(ACTIVATIONS[kind] + 1))
            sum_ = graph.op("Add", a, graph.op("DequantizeLinear", stored, *scale(kind)))
            return graph.op("Abs", coded(graph, sum_, kind, "Add"))

        what = f"constant of {kind}, between codes of its type"
        yield form.graph(what, "f32", build, unit=1, quick=kind == "uint16")
