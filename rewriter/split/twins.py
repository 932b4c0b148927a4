"""Outputs of a model that are computed twice.

Layers that share a cache each write it where an attention was lowered by itself. Cut apart, one
part would hand another what is an output of the model already, or write a cache that it does not
own.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from rewriter.nodes import op_of
from rewriter.split.flow import inner_nodes, repeatable


def without_twins(model: ir.Model) -> ir.Model:
    """A copy of a model in which nodes read its outputs instead of computing them again.

    Args:
        model: left as it is.
    """
    copy = model.clone()
    outputs = {v.producer() for v in copy.graph.outputs}
    same: dict[ir.Value, ir.Value] = {}
    first: dict[tuple[object, ...], ir.Node] = {}
    twins: list[tuple[ir.Node, ir.Node]] = []
    for node in copy.graph:
        if not repeatable(node) or inner_nodes(node):
            continue
        other = first.setdefault(_key(node, same), node)
        same |= zip(node.outputs, other.outputs, strict=True)
        if other is not node and other in outputs and node not in outputs:
            twins.append((node, other))
    for node, other in twins:
        ir.convenience.replace_all_uses_with(node.outputs, other.outputs)
    unused = [node for node, _ in twins]
    while unused:
        node = unused.pop()
        above = {v.producer() for v in node.inputs if v is not None}
        copy.graph.remove(node, safe=True)
        unused += [n for n in above if n is not None and n not in outputs and _unread(n)]
    return copy


def _unread(node: ir.Node) -> bool:
    return not any(value.uses() for value in node.outputs)


def _key(node: ir.Node, same: Mapping[ir.Value, ir.Value]) -> tuple[object, ...]:
    attributes = sorted((name, repr(a.value)) for name, a in node.attributes.items())
    inputs = [None if v is None else same.get(v, v) for v in node.inputs]
    return op_of(node), node.overload, tuple(attributes), tuple(inputs), len(node.outputs)
