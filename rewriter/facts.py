"""Facts of a node: what the table and the rules are asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from capabilities import Facts, Target, Tensor
from rewriter.opsets import differs
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
    defaults = schema_of(op_of(node), opset).attributes
    given = {
        name: attribute.value
        for name, attribute in node.attributes.data.items()
        if not attribute.is_ref()
    }
    return {**defaults, **given}


def facts_of(node: ir.Node, imports: Mapping[str, int], target: Target | None = None) -> Facts:
    """Facts of a node in its model.

    Args:
        node: the node.
        imports: opset imports of the graph or function the node is in.
        target: whose options and highest opset count.
    """
    op = op_of(node)
    opset = opset_of(op, imports)
    schema = schema_of(op, opset)
    inputs = {
        (name := schema.input_name(i)): _tensor(value, name)
        for i, value in enumerate(node.inputs)
        if value is not None and present(value)
    }
    outputs = {
        schema.output_name(i): _tensor(value, "")
        for i, value in enumerate(node.outputs)
        if present(value)
    }
    facts = Facts(
        op=op,
        opset=opset,
        attributes=attributes_of(node, opset),
        inputs=inputs,
        outputs=outputs,
        standard=schema.standard,
        activations=_activations(node, op),
        traits=frozenset(name for name, holds in _TRAITS.get(op, ()) if holds(node, imports)),
        options=target.options if target else {},
    )
    if target is None or target.opset is None or not schema.standard:
        return facts
    return replace(facts, newer=opset > target.opset and differs(facts, target.opset))


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


def _tensor(value: ir.Value, name: str) -> Tensor:
    stored = constant(value)
    producer = value.producer()
    return Tensor(
        dtype=_dtype_name(value.dtype),
        shape=dims_of(value),
        const=stored is not None,
        uniform=_uniform(stored, name),
        source="" if producer is None else op_of(producer),
        boundary=value.is_graph_input() or value.is_graph_output(),
    )


@cache
def _dtype_name(dtype: ir.DataType | None) -> str:
    return "" if dtype is None else dtype.name.lower()


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
_POSITIONS = _LAYOUT | _AFFINE
_RESHAPES = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Ops that ONNX Runtime moves QuantizeLinear and DequantizeLinear through, to the next unit."""


def position_source(node: ir.Node) -> ir.Value | None:
    """The integers that the input of a node is an affine function of, if it is one.

    Walks up through layout ops, casts, and products and sums with constants, to the Cast that
    turns integers into floats.
    """
    found = _sources(node.inputs[0])
    return found.pop() if found is not None and len(found) == 1 else None


def _may_hide_a_row(node: ir.Node, imports: Mapping[str, int]) -> bool:
    """A mask that is not known to show a key to every query."""
    from rewriter.shown_rows import may_hide_a_row  # which asks this module what is constant

    return may_hide_a_row(node, imports)


def _of_positions(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """Angles: integers times constants."""
    return position_source(node) is not None


def _negative_scales(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """A stored weight with a scale below 0, of all of it or of a channel."""
    scale, block = constant(node.inputs[1]), node.attributes.get("block_size")
    if scale is None or constant(node.inputs[0]) is None or (block is not None and block.value):
        return False
    return bool((scale.numpy() < 0).any())


def _root_last(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """Mul(x, Reciprocal(Sqrt(ReduceMean(Pow(x, 2)) + epsilon))), as torch.onnx writes a norm."""
    above = _above(node.inputs[1], "Reciprocal", "Sqrt", "Add", "ReduceMean", "Pow")
    return above is not None and above is node.inputs[0]


def _minimum_beside(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """MatMulNBits(A, q, s, zeros) - MatMul(ReduceSum(Reshape(A)), minimums)."""
    points = constant(node.inputs[3]) if len(node.inputs) > 3 else None
    beside = any(
        _above(value, "MatMul", "ReduceSum", "Reshape") is node.inputs[0]
        for consumer in node.outputs[0].consumers()
        if consumer.op_type in {"Add", "Sub"}
        for value in consumer.inputs
    )
    return beside and points is not None and not points.numpy().any()


def _zero_points_padded(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """Packed zero points of a row that take more than a byte and do not fill the last one."""
    points = node.inputs[3] if len(node.inputs) > 3 else None
    sizes = {
        name: node.attributes[name].value for name in ("K", "block_size") if name in node.attributes
    }
    if not present(points) or points is None or points.dtype != ir.DataType.UINT8 or len(sizes) < 2:
        return False
    given = node.attributes.get("bits")
    bits = -(-sizes["K"] // sizes["block_size"]) * (4 if given is None else given.as_int())
    return bool(bits > 8 and bits % 8)


def _skips_in_the_last_axis(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """A Slice with stored steps, of more than one along the last axis."""
    axes, steps = (constant(node.inputs[i]) if i < len(node.inputs) else None for i in (3, 4))
    data = node.inputs[0]
    if steps is None or data is None or data.shape is None:
        return False
    along = range(steps.size) if axes is None else axes.numpy().tolist()
    last = {-1, len(data.shape) - 1}
    return any(
        axis in last and step > 1 for axis, step in zip(along, steps.numpy().tolist(), strict=True)
    )


def _above(value: ir.Value | None, *ops: str) -> ir.Value | None:
    """The first input of a chain of ops, the last one first, that a value comes from."""
    for op in ops:
        producer = value.producer() if value is not None else None
        if producer is None or producer.op_type != op:
            return None
        value = producer.inputs[0]
    return value


_Trait = Callable[[ir.Node, Mapping[str, int]], bool]
_TRAITS: dict[str, tuple[tuple[str, _Trait], ...]] = {
    "DequantizeLinear": (("negative scales", _negative_scales),),
    "Attention": (("may hide a row", _may_hide_a_row),),
    "Cos": (("of positions", _of_positions),),
    "Sin": (("of positions", _of_positions),),
    "Mul": (("root last", _root_last),),
    "Slice": (("skips in the last axis", _skips_in_the_last_axis),),
    "com.microsoft::MatMulNBits": (
        ("minimum beside", _minimum_beside),
        ("zero points padded", _zero_points_padded),
    ),
}


def _sources(value: ir.Value | None) -> set[ir.Value] | None:
    """The integers a float value comes from; empty for constants, ``None`` for anything else."""
    found: set[ir.Value] = set()
    seen: set[ir.Value] = set()  # else the ways through x + x double with each sum
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value is None or value in seen or constant(value) is not None:
            continue
        seen.add(value)
        producer = value.producer()
        if producer is None or op_of(producer) not in _POSITIONS:
            return None
        first = producer.inputs[0]
        if producer.op_type == "Cast" and first is not None and _integer(first):
            found.add(first)
        else:
            waiting += producer.inputs
    return found


def _integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _activations(node: ir.Node, op: str) -> str:
    """The type that a unit's activations are quantized to, as :class:`Facts` has it."""
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
