"""A model around one node: in the main graph, in a branch, in a loop's body, in a function."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import onnx_ir as ir

from tests.fuzz.case import BOOL, I64, Array, Case

DOMAIN = "fuzz"
TURNS = 2


class Place(StrEnum):
    """Where the node is."""

    TOP = "top"
    BRANCH = "If"
    BODY = "Loop"
    FUNCTION = "function"
    PARAMETERS = "function with attributes"


def _value(name: str, tensor: ir.TensorProtocol, *, stored: bool, symbolic: bool) -> ir.Value:
    dims: list[int | str] = [int(d) for d in tensor.shape.numpy()]
    if symbolic and not stored:
        dims = [f"d{d}" for d in dims]
    return ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(dims),
        const_value=tensor if stored else None,
    )


def _node(case: Case, inputs: Sequence[ir.Value | None], prefix: str = "") -> ir.Node:
    domain, _, op_type = case.op.rpartition("::")
    attributes = ir.convenience.convert_attributes(dict(case.attributes))
    node = ir.Node(
        domain, op_type, inputs, attributes, num_outputs=len(case.outputs), name=f"{prefix}node"
    )
    for i, (value, kind) in enumerate(zip(node.outputs, case.outputs, strict=True)):
        value.name = "" if kind is None else f"{prefix}y{i}"
        value.type = None if kind is None else ir.TensorType(kind)
    return node


def _made(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.outputs if value.name]


def feeds(case: Case) -> dict[str, Array]:
    """What the inputs of the model are given."""
    return {k: v.array for k, v in case.inputs.items() if v is not None and not v.const}


def expected(place: Place, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of the model for those of the node."""
    return [np.stack([a] * TURNS) for a in arrays] if place is Place.BODY else list(arrays)


def model(case: Case, place: Place, shapes: Sequence[Sequence[int]] | None = None) -> ir.Model:
    """A model whose outputs are those of the node.

    Args:
        case: the node.
        place: where it is.
        shapes: of the node's outputs, to declare.
    """
    outer = {
        name: _value(name, given.tensor, stored=given.const, symbolic=case.symbolic)
        for name, given in case.inputs.items()
        if given is not None
    }
    imports = {"": case.opset, "com.microsoft": 1}
    functions: list[ir.Function] = []
    extra: list[ir.Value] = []
    if place is Place.TOP:
        nodes = [_node(case, [outer.get(name) for name in case.inputs])]
    elif place is Place.BRANCH:
        nodes, extra = _branches(case, outer)
    elif place is Place.BODY:
        nodes, extra = _loop(case, outer)
    else:
        function = _function(case, imports, parameters=place is Place.PARAMETERS)
        functions.append(function)
        call = ir.Node(
            DOMAIN, "Call", [v for v in outer.values() if v.const_value is None],
            list(ir.convenience.convert_attributes(dict(case.attributes)))
            if place is Place.PARAMETERS else [],
            num_outputs=len([k for k in case.outputs if k is not None]), name="call",
        )  # fmt: skip
        nodes = [call]
        imports = {**imports, DOMAIN: 1}
    outputs = _made(nodes[-1]) if place is Place.TOP else list(nodes[-1].outputs)
    kinds = [kind for kind in case.outputs if kind is not None]
    for i, (value, kind) in enumerate(zip(outputs, kinds, strict=True)):
        value.name, value.type = f"out{i}", ir.TensorType(kind)
        if shapes is not None:
            dims = list(shapes[i])
            value.shape = ir.Shape(
                [f"o{i}_{j}" for j in range(len(dims))] if case.symbolic else dims
            )
    inputs = [value for value in outer.values() if value.const_value is None] + extra
    outside = [value for value in outer.values() if value.const_value is not None and not functions]
    graph = ir.Graph(
        inputs, outputs, nodes=nodes, initializers=outside, opset_imports=imports, name="main"
    )
    return ir.Model(graph, ir_version=10, producer_name="fuzz", functions=functions)


def _branches(case: Case, outer: dict[str, ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
    """The same node in both branches; what is stored lies outside."""
    condition = ir.Value(name="condition", type=ir.TensorType(BOOL), shape=ir.Shape([]))
    graphs = []
    for name in ("then", "else"):
        node = _node(case, [outer.get(n) for n in case.inputs], f"{name}_")
        graphs.append(ir.Graph([], _made(node), nodes=[node], name=name))
    branches = [
        ir.AttrGraph(f"{name}_branch", graph)
        for name, graph in zip(("then", "else"), graphs, strict=True)
    ]
    count = len(graphs[0].outputs)
    return [ir.Node("", "If", [condition], branches, num_outputs=count, name="if")], [condition]


def _loop(case: Case, outer: dict[str, ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
    """The node in the body, every output collected over two turns; what is stored lies inside."""
    turns = ir.Value(name="turns", type=ir.TensorType(I64), shape=ir.Shape([]))
    turn = ir.Value(name="turn", type=ir.TensorType(I64), shape=ir.Shape([]))
    go = ir.Value(name="go", type=ir.TensorType(BOOL), shape=ir.Shape([]))
    on = ir.Node("", "Identity", [go], num_outputs=1, name="on")
    on.outputs[0].name, on.outputs[0].type = "on", ir.TensorType(BOOL)
    on.outputs[0].shape = ir.Shape([])
    inside = [value for value in outer.values() if value.const_value is not None]
    node = _node(case, [outer.get(n) for n in case.inputs], "body_")
    body = ir.Graph(
        [turn, go], [on.outputs[0], *_made(node)], nodes=[on, node], initializers=inside,
        name="body",
    )  # fmt: skip
    count = len(_made(node))
    loop = ir.Node(
        "", "Loop", [turns, None], [ir.AttrGraph("body", body)], num_outputs=count, name="loop"
    )
    for value in inside:
        del outer[value.name or ""]
    return [loop], [turns]


def _function(case: Case, imports: dict[str, int], *, parameters: bool) -> ir.Function:
    """The node in a function; what is stored are Constant nodes in it."""
    inputs: dict[str, ir.Value] = {}
    nodes: list[ir.Node] = []
    formal: list[ir.Value] = []
    for name, given in case.inputs.items():
        if given is None:
            continue
        if given.const:
            attribute = ir.Attr("value", ir.AttributeType.TENSOR, given.tensor)
            node = ir.Node("", "Constant", [], [attribute], num_outputs=1, name=f"{name}_stored")
            nodes.append(node)
            inputs[name] = node.outputs[0]
            inputs[name].name = f"{name}_stored"
        else:
            inputs[name] = ir.Value(name=name)
            formal.append(inputs[name])
    node = _node(case, [inputs.get(n) for n in case.inputs], "f_")
    for value in node.outputs:
        value.type = None
    given_attributes = ir.convenience.convert_attributes(dict(case.attributes))
    if parameters:
        for a in given_attributes:
            node.attributes.add(ir.RefAttr(a.name, a.name, a.type))
    nodes.append(node)
    graph = ir.Graph(formal, _made(node), nodes=nodes, opset_imports=imports, name="f")
    declared = [ir.Attr(a.name, a.type, None) for a in given_attributes] if parameters else []
    return ir.Function(DOMAIN, "Call", "", graph=graph, attributes=declared)


def extra_feeds(place: Place) -> dict[str, Array]:
    """What the model is given besides the inputs of the node."""
    if place is Place.BRANCH:
        return {"condition": np.array(True)}
    return {"turns": np.array(TURNS, np.int64)} if place is Place.BODY else {}
