"""Traits of a node: what the nodes around it and what it stores make of it (``Facts.traits``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from rewriter.nodes import constant, op_of, present
from rewriter.shown_rows import may_hide_a_row

_LAYOUT = frozenset({
    "Cast", "Concat", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
_AFFINE = frozenset({"Add", "Div", "MatMul", "Mul", "Sub"})
_POSITIONS = _LAYOUT | _AFFINE


def traits_of(node: ir.Node, op: str, imports: Mapping[str, int]) -> frozenset[str]:
    """The traits that a node of an op has, of those that the table's forms ask for."""
    return frozenset(name for name, holds in _TRAITS.get(op, ()) if holds(node, imports))


def position_source(node: ir.Node) -> ir.Value | None:
    """The integers that the input of a node is an affine function of, if it is one.

    Walks up through layout ops, casts, and products and sums with constants, to the Cast that
    turns integers into floats.
    """
    found = _sources(node.inputs[0])
    return found.pop() if found is not None and len(found) == 1 else None


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


def _negative_indices(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """Stored indices that count from the end of the axis."""
    indices = constant(node.inputs[1])
    return indices is not None and bool((indices.numpy() < 0).any())


def _of_a_diagonal(node: ir.Node, _imports: Mapping[str, int]) -> bool:
    """An Einsum with a letter twice in one operand."""
    given = node.attributes.get("equation")
    if given is None or given.is_ref():
        return False
    terms = given.as_string().partition("->")[0].split(",")
    return any(term.count(letter) > 1 for term in terms for letter in term if letter.isalpha())


def _above(value: ir.Value | None, *ops: str) -> ir.Value | None:
    """The first input of a chain of ops, the last one first, that a value comes from."""
    for op in ops:
        producer = value.producer() if value is not None else None
        if producer is None or producer.op_type != op:
            return None
        value = producer.inputs[0]
    return value


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


_Trait = Callable[[ir.Node, Mapping[str, int]], bool]
_TRAITS: dict[str, tuple[tuple[str, _Trait], ...]] = {
    "DequantizeLinear": (("negative scales", _negative_scales),),
    "Attention": (("may hide a row", may_hide_a_row),),
    "Cos": (("of positions", _of_positions),),
    "Sin": (("of positions", _of_positions),),
    "Einsum": (("of a diagonal", _of_a_diagonal),),
    "GatherElements": (("negative indices", _negative_indices),),
    "Mul": (("root last", _root_last),),
    "Slice": (("skips in the last axis", _skips_in_the_last_axis),),
    "com.microsoft::MatMulNBits": (
        ("minimum beside", _minimum_beside),
        ("zero points padded", _zero_points_padded),
    ),
}
