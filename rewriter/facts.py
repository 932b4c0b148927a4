"""Facts of a node: what the table and the rules are asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from capabilities import Facts, Tensor
from rewriter.schemas import op_name, schema_of

_SMALL = 64
"""Constants up to this many elements are looked at for being uniform; zero points always are."""


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
    schema = schema_of(op_of(node), opset)
    given = {
        name: attribute.value
        for name, attribute in node.attributes.items()
        if isinstance(attribute, ir.Attr) and not attribute.is_ref()
    }
    return {**schema.attributes, **given}


def facts_of(
    node: ir.Node, imports: Mapping[str, int], options: Mapping[str, str] | None = None
) -> Facts:
    """Facts of a node in its model.

    Args:
        node: the node.
        imports: opset imports of the graph or function the node is in.
        options: provider options of the target.
    """
    op = op_of(node)
    opset = opset_of(op, imports)
    schema = schema_of(op, opset)
    inputs = {
        schema.input_name(i): _tensor(value, schema.input_name(i))
        for i, value in enumerate(node.inputs)
        if value is not None and present(value)
    }
    outputs = {
        schema.output_name(i): _tensor(value, "")
        for i, value in enumerate(node.outputs)
        if present(value)
    }
    return Facts(
        op=op,
        opset=opset,
        attributes=attributes_of(node, opset),
        inputs=inputs,
        outputs=outputs,
        standard=schema.standard,
        activations=_activations(node) if op == "DequantizeLinear" else "",
        traits=frozenset(name for name, holds in _TRAITS.get(op, ()) if holds(node)),
        options=options or {},
    )


def dims_of(value: ir.Value) -> tuple[int | None, ...] | None:
    """Dims of a value, ``None`` where one is not a number."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else None for d in value.shape)


def static_dims(value: ir.Value) -> tuple[int, ...]:
    """Dims of a value that are all numbers.

    Raises:
        ValueError: one is not, or the rank is unknown.
    """
    dims = dims_of(value)
    if dims is None or None in dims:
        raise ValueError(f"the shape of '{value.name}' is not static: {value.shape}")
    return tuple(d for d in dims if d is not None)


def _tensor(value: ir.Value, name: str) -> Tensor:
    stored = constant(value)
    producer = value.producer()
    return Tensor(
        dtype="" if value.dtype is None else value.dtype.name.lower(),
        shape=dims_of(value),
        const=stored is not None,
        uniform=_uniform(stored, name),
        source="" if producer is None else op_of(producer),
        boundary=value.is_graph_input() or value.is_graph_output(),
    )


def _uniform(stored: ir.TensorProtocol | None, name: str) -> float | None:
    if stored is None or not (name.endswith("zero_point") or 0 < stored.size <= _SMALL):
        return None
    if stored.dtype == ir.DataType.STRING or stored.size == 0:
        return None
    array = stored.numpy()
    first = array.reshape(-1)[0]
    return float(first) if bool(np.all(array == first)) else None


_LAYOUT = frozenset({
    "Cast", "Concat", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
_AFFINE = frozenset({"Add", "Div", "MatMul", "Mul", "Sub"})


def position_source(node: ir.Node) -> ir.Value | None:
    """The integers that the input of a node is an affine function of, if it is one.

    Walks up through layout ops, casts, and products and sums with constants, to the Cast that
    turns integers into floats.
    """
    found = _sources(node.inputs[0])
    return found.pop() if found is not None and len(found) == 1 else None


def _weight_before_norm(node: ir.Node) -> bool:
    """Mul(w, x · Reciprocal(Sqrt(ReduceMean(Pow(x, 2)) + epsilon))), as torch.onnx writes it."""
    weight, normed = node.inputs[:2]
    producer = normed.producer() if normed is not None else None
    if constant(weight) is None or producer is None or producer.op_type != "Mul":
        return False
    chain = ["Reciprocal", "Sqrt", "Add", "ReduceMean", "Pow"]
    above = [v.producer() for v in producer.inputs if v is not None]
    step = next((n for n in above if n is not None and n.op_type == chain[0]), None)
    for wanted in chain:
        if step is None or step.op_type != wanted:
            return False
        value = step.inputs[0]
        step = value.producer() if value is not None else None
    return True


_TRAITS: dict[str, tuple[tuple[str, Callable[[ir.Node], bool]], ...]] = {
    "Cos": (("of positions", lambda node: position_source(node) is not None),),
    "Sin": (("of positions", lambda node: position_source(node) is not None),),
    "Mul": (("weight before norm", _weight_before_norm),),
}


def _sources(value: ir.Value | None) -> set[ir.Value] | None:
    """The integers a float value comes from; empty for constants, ``None`` for anything else."""
    if value is None or constant(value) is not None:
        return set()
    producer = value.producer()
    if producer is None or op_of(producer) not in _LAYOUT | _AFFINE:
        return None
    first = producer.inputs[0]
    if producer.op_type == "Cast" and first is not None and _integer(first):
        return {first}
    found: set[ir.Value] = set()
    for given in producer.inputs:
        above = _sources(given)
        if above is None:
            return None
        found |= above
    return found


def _integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _activations(node: ir.Node) -> str:
    """What the consumers of a weight multiply it with: a quantized type, or ``float``."""
    if constant(node.inputs[0]) is None:
        return ""
    found = {
        _quantized_from(other)
        for consumer in node.outputs[0].consumers()
        for other in consumer.inputs[:1]
        if other is not None and other is not node.outputs[0]
    }
    return found.pop() if len(found) == 1 else "float"


def _quantized_from(value: ir.Value) -> str:
    producer = value.producer()
    if producer is None or producer.op_type != "DequantizeLinear":
        return "float"
    source = producer.inputs[0]
    return "float" if source is None or source.dtype is None else source.dtype.name.lower()
