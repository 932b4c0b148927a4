"""Activations that are quantized and brought back, and the same ops of com.microsoft."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from rewriter.probe.case import Case, Forms, Outputs, cases
from rewriter.probe.cases.dequantize import ACTIVATIONS, K, N
from rewriter.probe.cases.parts import shaped
from rewriter.probe.graph import Graph
from rewriter.probe.operands import below, const, identity, run, value


@cases("DequantizeLinear", "QuantizeLinear")
def activations_alone(form: Forms) -> Iterator[Case]:
    """There and back between other nodes."""
    for kind, one in ACTIVATIONS.items():

        def build(graph: Graph, kind: str = kind, one: int = one) -> Outputs:
            given = value(8 / one, "f32"), value(0 if kind[0] == "i" else (one + 1) // 2, kind)
            codes = graph.op("QuantizeLinear", graph.op("Relu", run(2, 3, 8)), *given)
            return graph.op("Relu", graph.op("DequantizeLinear", codes, *given))

        yield form.graph(f"activations of {kind}", "f32", build, quick=kind in {"uint8", "uint16"})


@cases("com.microsoft::QuantizeLinear", "com.microsoft::DequantizeLinear")
def contrib(form: Forms) -> Iterator[Case]:
    """Of 16 bits before opset 21 had them, and of a weight."""

    def build(graph: Graph) -> Outputs:
        given = value(0.05, "f32"), value(300, "uint16")
        codes = graph.op("com.microsoft::QuantizeLinear", graph.op("Relu", run(2, 3, 8)), *given)
        codes.type = ir.TensorType(ir.DataType.UINT16)
        back = graph.op("com.microsoft::DequantizeLinear", shaped(codes, 2, 3, 8), *given)
        return graph.op("Relu", shaped(back, 2, 3, 8))

    def weight(graph: Graph) -> Outputs:
        codes = const(K, N, dtype="int8", draw=below(128, -128))
        made = graph.op(
            "com.microsoft::DequantizeLinear", codes, value(0.01, "f32"), value(3, "int8")
        )
        return graph.op("MatMul", run(1, K, K, draw=identity), shaped(made, K, N))

    yield form.graph("uint16 there and back", "f32", build, quick=True)
    if form.op == "com.microsoft::DequantizeLinear":
        yield form.graph("int8 weight", "f32", weight, quick=True)


@cases("DynamicQuantizeLinear")
def dynamic(form: Forms) -> Iterator[Case]:
    """There and back."""

    def build(graph: Graph) -> Outputs:
        parts = graph.ops(form.op, [run(1, 5, 64)], {}, 3)
        return graph.op("DequantizeLinear", *parts)

    yield form.graph("then DequantizeLinear", "f32", build, quick=True)
