"""Graphs that do not hang together are found, and said in one sentence."""

from __future__ import annotations

import onnx_ir as ir

from rewriter.wellformed import faults
from tests.decoders import decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def chain() -> tuple[Builder, ir.Model]:
    """Two Relus, one after the other."""
    b = Builder()
    y = b.op("Relu", b.input("x", F32, (2,)), name="y")
    z = b.op("Relu", y, name="z")
    return b, b.model([(z, F32, (2,))])


def branches(b: Builder, inner: ir.Value) -> ir.Model:
    """An If whose branches read a value that is not theirs."""
    flag = b.input("flag", ir.DataType.BOOL, ())
    graphs = {}
    for name in ("then_branch", "else_branch"):
        node = ir.Node("", "Relu", [inner], num_outputs=1, name=name)
        node.outputs[0].name = f"{name}/out"
        graphs[name] = ir.Graph([], node.outputs, nodes=[node], name=name)
    z = b.op("If", flag, name="z", **graphs)
    return b.model([(z, F32, (2,))])


def test_good_ones_have_no_faults() -> None:
    assert not list(faults(chain()[1]))
    assert not list(faults(decoder()))


def test_a_value_read_before_it_is_computed() -> None:
    _, model = chain()
    first, second = list(model.graph)
    model.graph.remove(second)
    model.graph.insert_before(first, second)
    assert list(faults(model)) == [
        "node 'z/Relu' (Relu) reads 'y', which node 'y/Relu' computes only later"
    ]


def test_a_value_that_nothing_defines() -> None:
    _, model = chain()
    next(iter(model.graph)).replace_input_with(0, ir.val("nope"))
    assert list(faults(model)) == ["node 'y/Relu' (Relu) reads 'nope', which nothing defines"]


def test_an_output_that_no_node_computes() -> None:
    _, model = chain()
    model.graph.outputs.append(ir.val("ghost", F32, (2,)))
    assert list(faults(model)) == ["the output 'ghost' of graph 'main' is computed by no node"]


def test_names_that_stand_for_two_things() -> None:
    _, model = chain()
    first, second = list(model.graph)
    second.name = first.name
    second.outputs[0].name = "y"
    found = list(faults(model))
    assert found == [
        "two nodes of graph 'main' are named 'y/Relu'",
        "'y' is defined twice, the second time by node 'y/Relu'",
    ]


def test_unnamed_nodes_are_no_duplicates() -> None:
    _, model = chain()
    for node in model.graph:
        node.name = ""
    assert not list(faults(model))


def test_graphs_inside_nodes_are_looked_at() -> None:
    found = list(faults(branches(Builder(), ir.val("stranger", F32, (2,)))))
    assert found == [
        "node 'then_branch' (Relu) reads 'stranger', which nothing defines",
        "node 'else_branch' (Relu) reads 'stranger', which nothing defines",
    ]


def test_graphs_inside_nodes_see_what_is_around_them() -> None:
    b = Builder()
    assert not list(faults(branches(b, b.input("x", F32, (2,)))))
