"""What a node and its values say by themselves: op, attributes, what is stored, dims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from rewriter.schemas import op_name, schema_of


def opset_of(op: str, imports: Mapping[str, int]) -> int:
    """The version of an op's domain that the model imports (1 where it imports none)."""
    domain = op.rpartition("::")[0]
    return imports.get(domain, imports.get("ai.onnx", 1) if not domain else 1)


def op_of(node: ir.Node) -> str:
    """``domain::Type`` of a node."""
    return op_name(node.domain, node.op_type)


def present(value: ir.Value | None) -> bool:
    """Whether an optional input or output is there (an empty name means it is not)."""
    return value is not None and value.name != ""


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor stored for a value; none if a caller could override it."""
    if value is None:
        return None
    producer = value.producer()
    if producer is not None:
        return ir.convenience.get_const_tensor(value) if producer.op_type == "Constant" else None
    return None if value.is_graph_input() else value.const_value


def attributes_of(node: ir.Node, opset: int) -> dict[str, Any]:
    """The node's attributes over the schema's defaults; those without a default are ``None``."""
    defaults = schema_of(op_of(node), opset).attributes
    given = {
        name: attribute.value
        for name, attribute in node.attributes.data.items()
        if not attribute.is_ref()
    }
    return {**defaults, **given}


def dims_of(value: ir.Value) -> tuple[int | None, ...] | None:
    """Dims of a value, ``None`` where one is not a number."""
    if value.shape is None:
        return None
    return tuple([d if isinstance(d, int) else None for d in value.shape])


class NotStatic(ValueError):
    """A dim that has to be a number is not; no fault of the rule that asked."""


def static_dims(value: ir.Value) -> tuple[int, ...]:
    """Dims of a value that are all numbers.

    Raises:
        NotStatic: one is not, or the rank is unknown.
    """
    dims = dims_of(value)
    if dims is None or None in dims:
        raise NotStatic(f"the shape of '{value.name}' is not static: {value.shape}")
    return tuple(d for d in dims if d is not None)
