"""Branches, loops, sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from rewriter.probe.case import OPSET, Case, Forms, Outputs, cases
from rewriter.probe.cases.parts import shaped
from rewriter.probe.graph import Graph
from rewriter.probe.operands import exactly, run, value

SHAPE = (1, 4)
F32, I64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


def typed(name: str, dtype: ir.DataType, *dims: int) -> ir.Value:
    """A value of an inner graph."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(dims))


def inner(name: str, inputs: Sequence[ir.Value], *nodes: ir.Node) -> ir.Graph:
    """An inner graph whose outputs are those of its nodes."""
    outputs = [output for node in nodes for output in node.outputs]
    return ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": OPSET}, name=name)


def node(
    op: str, operands: Sequence[ir.Value], name: str, dtype: ir.DataType, *dims: int
) -> ir.Node:
    """A node of an inner graph."""
    return ir.Node("", op, operands, outputs=[typed(name, dtype, *dims)])


@cases("If")
def branches(form: Forms) -> Iterator[Case]:
    """A condition that is an input, and one that is computed."""
    for what in ("run-time condition", "computed condition"):

        def build(graph: Graph, computed: bool = what[0] == "c") -> Outputs:
            x = graph.add(run(*SHAPE))
            if computed:
                condition = graph.op("Greater", run(draw=exactly(2)), value(0.0, "f32"))
            else:
                condition = graph.add(run(dtype="bool", draw=exactly(True)))
            arms = {
                f"{arm}_branch": inner(arm, [], node(op, [x], arm, F32, *SHAPE))
                for arm, op in (("then", "Relu"), ("else", "Sigmoid"))
            }
            return shaped(graph.op("If", condition, **arms), *SHAPE)

        yield form.graph(what, "f32", build, quick=what[0] == "r")


@cases("Loop")
def loop(form: Forms) -> Iterator[Case]:
    """Three turns of a sum."""

    def build(graph: Graph) -> Outputs:
        x = graph.add(run(*SHAPE))
        turn, going, sum_ = typed("turn", I64), typed("going", BOOL), typed("sum", F32, *SHAPE)
        again = node("Identity", [going], "again", BOOL)
        more = node("Add", [sum_, x], "more", F32, *SHAPE)
        body = inner("body", [turn, going, sum_], again, more)
        return shaped(graph.op("Loop", value(3), value(True, "bool"), x, body=body), *SHAPE)

    yield form.graph("three turns", "f32", build, quick=True)


@cases("Scan")
def scan(form: Forms) -> Iterator[Case]:
    """A running sum."""

    def build(graph: Graph) -> Outputs:
        sum_, row = typed("sum", F32, 4), typed("row", F32, 4)
        more = node("Add", [sum_, row], "more", F32, 4)
        kept = node("Identity", more.outputs, "kept", F32, 4)
        body = inner("body", [sum_, row], more, kept)
        operands = [run(4), run(3, 4)]
        last, rows = graph.ops("Scan", operands, {"body": body, "num_scan_inputs": 1}, 2)
        return [shaped(last, 4), shaped(rows, 3, 4)]

    yield form.graph("running sum", "f32", build, quick=True)


@cases("SequenceConstruct", "SequenceAt", "Optional", "OptionalGetElement")
def containers(form: Forms) -> Iterator[Case]:
    """What is put into a sequence or an optional, and taken out."""

    def build(graph: Graph) -> Outputs:
        x = graph.add(run(*SHAPE))
        kind = ir.TensorType(F32)
        if form.op.startswith("Sequence"):
            held = graph.op("SequenceConstruct", x, graph.op("Relu", x))
            held.type = ir.SequenceType(kind)
            taken = graph.op("SequenceAt", held, value(1))
        else:
            held = graph.op("Optional", x)
            held.type = ir.OptionalType(kind)
            taken = graph.op("OptionalGetElement", held)
        return graph.op("Sigmoid", shaped(taken, *SHAPE))

    yield form.graph("put in and taken out", "f32", build, quick=True)
