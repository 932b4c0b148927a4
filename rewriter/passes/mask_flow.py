"""Where a number that hides keys goes: from a constant, through masks and scores, to a softmax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, op_of

Places = Mapping[str, tuple[int, ...] | None]
"""Ops, and the inputs that a number goes through; ``None`` for all."""
Use = tuple[ir.Node, int]

_LAYOUT: Places = dict.fromkeys((
    "Cast", "CastLike", "Expand", "Gather", "GatherND", "Identity", "Reshape", "Slice", "Split",
    "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "com.microsoft::Trilu",
), (0,))  # fmt: skip
_KEEPING: Places = {
    **_LAYOUT, "Concat": None, "Pad": (0, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2),
    "Where": (1, 2),
}  # fmt: skip
"""Ops that give numbers as they are."""
HIDING: Places = {
    **_KEEPING, "Add": None, "Max": None, "Min": None, "Mul": None, "Sub": (0,),
}  # fmt: skip
"""Ops behind which what is hidden stays hidden."""
_QUANTIZING: Places = dict.fromkeys((
    "DequantizeLinear", "QuantizeLinear", "com.microsoft::DequantizeLinear",
    "com.microsoft::QuantizeLinear",
), (0,))  # fmt: skip
_COMPUTING: Places = {**HIDING, "Div": None, "Neg": None, "Range": None, "Sub": None}
_OF_FLAGS: Places = {**_KEEPING, "Mul": None, "Sub": None}
_BLIND = frozenset({"IsNaN", "Shape", "Size"})
_ORDER = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
FUSED = {
    "Attention": 3,
    "com.microsoft::Attention": 5,
    "com.microsoft::GroupQueryAttention": 10,
    "com.microsoft::MultiHeadAttention": 5,
}
"""Which input is added to the scores, of ops that hold the softmax inside."""
FLOATS = frozenset({
    ir.DataType.BFLOAT16, ir.DataType.DOUBLE, ir.DataType.FLOAT, ir.DataType.FLOAT16,
})  # fmt: skip


@dataclass
class Way:
    """Where one use of a constant leads.

    Attributes:
        sites: uses that bring it to scores.
        ends: nodes with a softmax.
        equals: uses of the same number, by nodes that ask where the mask holds it.
        seen: every node it comes to.
        why: what else it does; empty if it is a mask and nothing else.
    """

    sites: list[Use] = field(default_factory=list)
    ends: list[ir.Node] = field(default_factory=list)
    equals: list[Use] = field(default_factory=list)
    seen: set[ir.Node] = field(default_factory=set)
    why: str = ""


def sources(model: ir.Model) -> list[ir.Value]:
    """Float constants whose numbers may come to a softmax, in the order of the graph."""
    found: dict[ir.Value, None] = {}
    reaching = {**HIDING, **_QUANTIZING}
    for graph in [*model.graphs(), *model.functions.values()]:
        for node in graph:
            at = 0 if op_of(node) == "Softmax" else FUSED.get(op_of(node), len(node.inputs))
            for value in roots(node.inputs[at] if at < len(node.inputs) else None, reaching):
                if value.dtype in FLOATS and filled(value) is not None:
                    found[value] = None
    return list(found)


def filled(value: ir.Value) -> ir.TensorProtocol | None:
    """What a constant holds, or what a ConstantOfShape fills a tensor with."""
    made = value.producer()
    if made is None or op_of(made) != "ConstantOfShape":
        return constant(value)
    given = made.attributes.get("value")
    return None if given is None or given.is_ref() else given.as_tensor()


def roots(value: ir.Value | None, through: Places) -> Iterator[ir.Value]:
    """What a float is made of, above the ops it may go through; integers are made of nothing."""
    stack, seen = [value], set[ir.Value]()
    while stack:
        one = stack.pop()
        if one is None or one in seen:
            continue
        seen.add(one)
        made = one.producer()
        inner = made is not None and op_of(made) in through and filled(one) is None
        if made is None or not inner or (_discrete(one) and op_of(made) not in _QUANTIZING):
            yield one
            continue
        places = through[op_of(made)]
        stack += reversed([v for i, v in enumerate(made.inputs) if places is None or i in places])


def follow(use: Use, old: float, new: float) -> Way:
    """Follow one use of a constant to every end.

    Args:
        use: the node that reads it, and where.
        old: the number it holds.
        new: the number that it is to hold.
    """
    way, done = Way(), set[tuple[Use, bool]]()
    stack = [(use, True, True)]  # it is the constant itself; it is the very number
    while stack:
        one, bare, exact = stack.pop()
        if (one, exact) in done:
            continue
        done.add((one, exact))
        node, at = one
        op = op_of(node)
        way.seen.add(node)
        if op == "Softmax" or FUSED.get(op) == at:
            way.ends.append(node)
            way.sites += [one] if op in FUSED else []
        elif op == "Equal" and exact and not bare and _is_number(node.inputs[1 - at], old):
            way.equals.append((node, 1 - at))
        elif not (_tells_no_difference(node, at, new) or _largest_taken_off(node, at)):
            why = _does_else(node, at, old, bare=bare)
            way.why = way.why or why
            if not why or op == "Mul" or op in _QUANTIZING:  # else it is no mask at all
                way.sites += [one] if meets_scores(node, at) else []
                outputs = [v for v in node.outputs if v.is_graph_output()]
                way.why = way.why or "".join(f"'{v.name}' is an output" for v in outputs[:1])
                bare, exact = bare and op in _LAYOUT, exact and op not in {"Add", "Sub"}
                uses = [found for output in node.outputs for found in output.uses()]
                stack += [((user, i), bare, exact) for user, i in reversed(uses)]
    if way.ends and not way.sites:
        way.why = way.why or "no scores are mixed with it"
    return way


def _does_else(node: ir.Node, at: int, old: float, *, bare: bool) -> str:
    """What a node does with a number that depends on what it is; empty if nothing."""
    op, where = op_of(node), f"{op_of(node)} '{node.name}'"
    places = HIDING.get(op, ())
    reduced = node.attributes.get("reduction")
    if (places is not None and at not in places) or (reduced and reduced.value != "none"):
        return f"it goes to {where}"
    if op in {"Cast", "CastLike"} and node.outputs[0].dtype not in FLOATS:
        return f"{where} makes no float of it"
    if op in {"Max", "Min"} and bare:
        return f"it is a bound of {where}"
    if op == "Mul" and np.isinf(old):
        return f"{where} multiplies it, and {old:g} times 0 is NaN"
    if op == "Mul" and not all(_is_flag(v) for i, v in enumerate(node.inputs) if i != at):
        return f"{where} multiplies it with what may be neither 0 nor 1"
    return ""


def _tells_no_difference(node: ir.Node, at: int, new: float) -> bool:
    """Whether a node gives the same for any number that hides."""
    op = op_of(node)
    if op in _BLIND or (op == "Cast" and node.outputs[0].dtype == ir.DataType.BOOL):
        return True
    stored = constant(node.inputs[1 - at]) if op in _ORDER else None
    return stored is not None and bool((stored.numpy().astype(np.float64) > new / 2).all())


def _largest_taken_off(node: ir.Node, at: int) -> bool:
    """ReduceMax(x) that is subtracted from x and nothing else, before a softmax of attention sinks.

    A row that sees a key has it among the keys that are seen.
    """
    made = node.outputs[0]
    users = [op_of(n) == "Sub" and i == 1 and n.inputs[0] is node.inputs[0] for n, i in made.uses()]
    return op_of(node) == "ReduceMax" and at == 0 and all(users) and not made.is_graph_output()


def _is_number(value: ir.Value | None, number: float) -> bool:
    stored = constant(value)
    return stored is not None and bool((stored.numpy().astype(np.float64) == number).all())


def _is_flag(value: ir.Value | None) -> bool:
    """Whether a float is made of integers and of 0 and 1 alone, as 1 - mask is."""
    for root in roots(value, _OF_FLAGS):
        stored = filled(root)
        if stored is not None and root.dtype in FLOATS:
            array = stored.numpy().astype(np.float64)
            if not ((array == 0) | (array == 1)).all():
                return False
        elif not _discrete(root):
            return False
    return True


def _discrete(value: ir.Value) -> bool:
    return value.dtype is not None and (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)


def meets_scores(node: ir.Node, at: int) -> bool:
    """Whether a mask is added to what is computed from data, or selected in its place."""
    if op_of(node) not in {"Add", "Where"} or not _of_masks(node.inputs[at]):
        return False
    places = HIDING[op_of(node)] or range(len(node.inputs))
    return not all(_of_masks(node.inputs[i]) for i in places if i != at)


def _of_masks(value: ir.Value | None) -> bool:
    """Whether a value is made of constants, integers and conditions alone."""
    return all(filled(root) is not None or _discrete(root) for root in roots(value, _COMPUTING))
