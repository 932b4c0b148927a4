"""Values within a graph that a device can be asked for, without taking apart what it fuses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx_ir as ir

from rewriter.extract import between, induced
from rewriter.nodes import constant, op_of

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE})


def visible(model: ir.Model) -> list[ir.Value]:
    """What of a graph depends on its inputs and can be compared, in the order it is computed.

    Floats and bools; between QuantizeLinear and DequantizeLinear the integers stand for the float
    that they mean, as a float in the middle of such a unit would no longer be computed in integers.
    Nothing of a graph with subgraphs, which may read any value.
    """
    if any(_has_graph(node) for node in model.graph):
        return []
    fed = {value for value in model.graph.inputs if value.const_value is None}
    found = []
    for node in model.graph:
        if fed.isdisjoint(value for value in node.inputs if value is not None):
            continue
        fed.update(node.outputs)
        found += [value for value in node.outputs if value.name and _comparable(value)]
    return found


def seen_name(value: ir.Value) -> str:
    """What the float is called that is compared for a value."""
    plain = value.dtype in _FLOATS or value.is_graph_output()
    return value.name or "" if plain else f"{value.name} as float"


def entry(value: ir.Value) -> ir.Value:
    """Where a part of the graph that begins at a value is fed: before it is quantized."""
    made = value.producer()
    if made is not None and op_of(made) == "QuantizeLinear" and made.inputs[0] is not None:
        return made.inputs[0]
    return value


def maker(value: ir.Value) -> ir.Node:
    """The node that computes a value, not the one that only stores it in another type."""
    node = value.producer()
    while node is not None and op_of(node) in {"QuantizeLinear", "DequantizeLinear"}:
        above = node.inputs[0]
        if above is None or above.producer() is None:
            break
        node = above.producer()
    assert node is not None, f"{value.name} is computed by nobody"
    return node


def part(
    model: ir.Model, values: Sequence[ir.Value], boundary: Collection[ir.Value] = ()
) -> ir.Model:
    """What computes some values, each as the float that is compared, as a model of its own.

    Args:
        model: they live in.
        values: outputs of the graph, or some of :func:`visible`.
        boundary: values of the graph that become inputs.
    """
    stops = {*boundary, *model.graph.inputs}
    wanted = between(values, stops)
    nodes = [node for node in model.graph if node in wanted]
    made = induced(model, nodes, stops, values)
    outputs = list(made.graph.outputs)
    for at, (value, copy) in enumerate(zip(values, outputs, strict=True)):
        name = seen_name(value)
        if name != value.name:
            outputs[at] = _as_float(made.graph, copy, name)
    made.graph.outputs[:] = outputs
    return made


def _as_float(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    """Integers as the float they mean, bools as 0 and 1."""
    made, dtype = value.producer(), ir.DataType.FLOAT
    if value.dtype == ir.DataType.BOOL:
        node = ir.node("Cast", [value], {"to": int(dtype)}, name=name)
    else:
        assert made is not None
        scale = made.inputs[1]
        assert scale is not None
        dtype = scale.dtype or dtype
        node = ir.node("DequantizeLinear", [value, *made.inputs[1:]], name=name)
    graph.append(node)
    result = node.outputs[0]
    result.name, result.shape, result.type = name, value.shape, ir.TensorType(dtype)
    return result


def _comparable(value: ir.Value) -> bool:
    made = value.producer()
    if made is None or constant(value) is not None:
        return False
    if op_of(made) == "QuantizeLinear":
        scale = constant(made.inputs[1])
        return scale is not None and scale.size == 1
    if op_of(made) == "DequantizeLinear":
        return False  # the integers are there
    readers = [op_of(node) for node in _readers(value)]
    within = bool(readers) and set(readers) == {"QuantizeLinear"}
    return not within and (value.dtype in _FLOATS or value.dtype == ir.DataType.BOOL)


def _readers(value: ir.Value) -> Iterable[ir.Node]:
    return (node for node, _ in value.uses())


def _has_graph(node: ir.Node) -> bool:
    graphs = {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}
    return any(attribute.type in graphs for attribute in node.attributes.values())
