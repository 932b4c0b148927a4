"""Whether a graph hangs together: every value defined once, before it is used.

The ONNX checker cannot be asked: it knows no op of ONNX Runtime's, and rejects their models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from rewriter.schemas import op_name, schema_of


def faults(model: ir.Model) -> Iterator[str]:
    """A sentence for everything that is wrong with the graphs of a model."""
    yield from _graph(model.graph, frozenset())
    for function in model.functions.values():
        yield from _nodes(function, set(function.inputs), set())


def misused_attributes(model: ir.Model) -> Iterator[str]:
    """A sentence for every attribute that has another type than its op knows."""
    graphs: list[ir.Graph | ir.Function] = [*model.graphs(), *model.functions.values()]
    for node in (node for graph in graphs for node in graph):
        types = _attribute_types(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        for name, attribute in node.attributes.items():
            if not attribute.is_ref() and types.get(name, attribute.type) != attribute.type:
                yield (
                    f"the attribute {name} of node '{node.name}' ({node.op_type}) has the type "
                    f"{attribute.type.name}, and its op knows {types[name].name}"
                )


@cache
def _attribute_types(domain: str, op_type: str, opset: int) -> Mapping[str, ir.AttributeType]:
    """What is known of the attributes of an op: those with a default, where ONNX has no schema."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        defaults = schema_of(op_name(domain, op_type), opset).attributes
        return {k: _TYPES[type(v)] for k, v in defaults.items() if type(v) in _TYPES}
    return {k: ir.AttributeType(int(a.type)) for k, a in schema.attributes.items()}


_TYPES = {
    float: ir.AttributeType.FLOAT,
    int: ir.AttributeType.INT,
    str: ir.AttributeType.STRING,
}


def _graph(graph: ir.Graph, outer: Set[ir.Value]) -> Iterator[str]:
    for name in _repeated(value.name for value in graph.inputs):
        yield f"two inputs of graph '{graph.name}' are named '{name}'"
    for name in _repeated(value.name for value in graph.outputs):
        yield f"two outputs of graph '{graph.name}' are named '{name}'"
    for name in _repeated(node.name for node in graph):
        yield f"two nodes of graph '{graph.name}' are named '{name}'"
    known = {*outer, *graph.inputs, *graph.initializers.values()}
    names = {v.name or "" for v in {*graph.inputs, *graph.initializers.values()}}
    yield from _nodes(graph, known, names)
    for output in graph.outputs:
        if output not in known:
            yield f"the output '{output.name}' of graph '{graph.name}' is computed by no node"


def _nodes(graph: ir.Graph | ir.Function, known: set[ir.Value], names: set[str]) -> Iterator[str]:
    for node in graph:
        for value in node.inputs:
            if value is not None and value.name and value not in known:
                yield f"node '{node.name}' ({node.op_type}) reads '{value.name}', {_missing(value)}"
        for attribute in node.attributes.values():
            yield from _attribute(attribute, known)
        for value in node.outputs:
            if value.name and value.name in names:
                yield f"'{value.name}' is defined twice, the second time by node '{node.name}'"
            names.add(value.name or "")
            known.add(value)


def _attribute(attribute: ir.Attr, known: Set[ir.Value]) -> Iterator[str]:
    if attribute.is_ref():
        return
    if attribute.type == ir.AttributeType.GRAPH:
        yield from _graph(attribute.as_graph(), known)
    elif attribute.type == ir.AttributeType.GRAPHS:
        for graph in attribute.as_graphs():
            yield from _graph(graph, known)


def _missing(value: ir.Value) -> str:
    """Why a value is not there when it is read."""
    producer = value.producer()
    if producer is None:
        return "which nothing defines"
    return f"which node '{producer.name}' computes only later"


def _repeated(names: Iterable[str | None]) -> list[str]:
    return [name for name, count in Counter(names).items() if name and count > 1]
