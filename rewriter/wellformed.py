"""Whether a graph hangs together: every value defined once, before it is used.

The ONNX checker cannot be asked: it knows no op of ONNX Runtime's, and rejects their models.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def faults(model: ir.Model) -> Iterator[str]:
    """A sentence for everything that is wrong with the graphs of a model."""
    yield from _graph(model.graph, frozenset())
    for function in model.functions.values():
        yield from _nodes(function, set(function.inputs), set())


def _graph(graph: ir.Graph, outer: frozenset[ir.Value]) -> Iterator[str]:
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
                yield (
                    f"node '{node.name}' ({node.op_type}) reads '{value.name}', which nothing "
                    "before it defines"
                )
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _graph(attribute.as_graph(), frozenset(known))
        for value in node.outputs:
            if value.name and value.name in names:
                yield f"'{value.name}' is defined twice, the second time by node '{node.name}'"
            names.add(value.name or "")
            known.add(value)
