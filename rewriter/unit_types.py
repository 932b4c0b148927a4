"""The type that the activations of a unit between DequantizeLinear and QuantizeLinear have."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from rewriter.nodes import constant, op_of

_RESHAPES = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Ops that ONNX Runtime moves QuantizeLinear and DequantizeLinear through, to the next unit."""


def activations_of(node: ir.Node, op: str) -> str:
    """The type that a unit's activations are quantized to; see ``Facts.activations``."""
    if op == "QuantizeLinear":
        return ""
    return _of_weight(node) if op == "DequantizeLinear" else _of_unit(node)


def _of_unit(node: ir.Node) -> str:
    """The type behind all computed floats that a node reads, where all it gives is quantized."""
    read = []
    for value in node.inputs:
        if value is not None and _computed(value):
            read.append(_quantized_from(value))
            if read[-1] == "float":
                return ""
    if not read:
        return ""
    given = [v for v in node.outputs if v.dtype is None or v.dtype.is_floating_point()]
    users = [user for value in given for user in _readers(value)]
    if not users or any(user is None or user.op_type != "QuantizeLinear" for user in users):
        return ""
    return read[0]


def _readers(value: ir.Value) -> Iterator[ir.Node | None]:
    """Nodes that read a value, behind what only reshapes it; ``None`` where the graph gives it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            yield None
        for user in value.consumers():
            if op_of(user) in _RESHAPES:
                waiting.append(user.outputs[0])
            else:
                yield user


def _computed(value: ir.Value) -> bool:
    """Whether it is a float that no constant alone decides."""
    if value.dtype is None or not value.dtype.is_floating_point() or constant(value) is not None:
        return False
    made = value.producer()
    stored = made is not None and made.op_type == "DequantizeLinear" and made.inputs[0]
    return not stored or constant(stored) is None


def _of_weight(node: ir.Node) -> str:
    """What the consumers of a weight multiply it with: a quantized type, or ``float``.

    Rows of a table in 16 bits that are only looked up are activations themselves: the type that
    they are quantized to.
    """
    stored = constant(node.inputs[0])
    if stored is None:
        return ""
    consumers = node.outputs[0].consumers()
    found = {
        _quantized_from(other)
        for consumer in consumers
        for other in consumer.inputs[:1]
        if other is not None and other is not node.outputs[0]
    }
    if not found and stored.dtype.bitwidth == 16:
        found = {_quantized_to(consumer.outputs[0]) for consumer in consumers}
    return found.pop() if len(found) == 1 else "float"


def _quantized_to(value: ir.Value) -> str:
    users = list(_readers(value))
    types = {
        user.outputs[0].dtype
        for user in users
        if user is not None and user.op_type == "QuantizeLinear"
    }
    dtype = types.pop() if len(types) == 1 and None not in users else None
    return "float" if dtype is None else dtype.name.lower()


def _quantized_from(value: ir.Value) -> str:
    producer = value.producer()
    while producer is not None and op_of(producer) in _RESHAPES and producer.inputs[0] is not None:
        producer = producer.inputs[0].producer()
    if producer is None or producer.op_type != "DequantizeLinear":
        return "float"
    source = producer.inputs[0]
    return "float" if source is None or source.dtype is None else source.dtype.name.lower()
