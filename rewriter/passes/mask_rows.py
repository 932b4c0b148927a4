"""Rows of scores that a mask hides whole: what they give depends on the number that hides.

A row of -inf gives NaN, or 0 where torch guards the softmax or an Attention says so; a number that
swallows the scores gives equal weights; one that does not, the weights of a row without a mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.computed import computed
from rewriter.nodes import attributes_of, dims_of, op_of, opset_of, present
from rewriter.passes.mask_flow import (
    FLOATS,
    FUSED,
    HIDING,
    Use,
    Way,
    filled,
    meets_scores,
    roots,
)
from rewriter.passes.mask_guard import Guard, guards_of

HIDES = -9.9e3
"""Numbers from here down hide keys: -1e4 is -9984 in bfloat16."""
_STEP = 2e-3
"""A number swallows the scores it is added to if its neighbours are further away than this."""
_EPS = {
    ir.DataType.BFLOAT16: 2.0**-7, ir.DataType.DOUBLE: 2.0**-52, ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.FLOAT16: 2.0**-10,
}  # fmt: skip
_LOWEST = -65504.0
"""At or below this ONNX Runtime's Attention may take a number for the lowest of its type."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes of rows that are hidden whole.

    Attributes:
        why: why the number has to stay; empty if it need not.
        noted: there may be such rows, and they would give something else.
        guards: of a softmax that gives 0 for them, which have to ask the mask then.
    """

    why: str = ""
    noted: bool = False
    guards: tuple[Guard, ...] = ()


def hidden_rows(model: ir.Model, way: Way, old: float) -> Rows:
    """What another number in the place of ``old`` does to rows that a mask hides whole."""
    across = next((end for end in way.ends if not _along_last(end, model)), None)
    if across is not None:
        return Rows(f"{op_of(across)} '{across.name}' is not along the last axis")
    guarded = any(_gives_zero(end, old) for end in way.ends)
    alone = all(_masks(end) == 1 for end in way.ends)
    noted = False
    for use in way.sites:
        where, empty = f"{op_of(use[0])} '{use[0].name}'", _hides_a_row(model, use)
        single = alone and _numbers(use) <= {old}
        lost = math.isinf(old) or guarded or _swallows(use, old)
        if single and (empty is False or not lost):
            continue
        if empty:
            return Rows(f"{where} hides a row whole, and its weights would be others")
        if guarded:
            guards = _guards(model, way) if single else ()
            return Rows("" if guards else f"{where} may hide a row whole, which gives 0 by {old:g}",
                        guards=guards)  # fmt: skip
        noted = True
    return Rows(noted=noted)


def _numbers(use: Use) -> set[float]:
    """The numbers by which a mask hides, as far as constants show."""
    node, at = use
    found: set[float] = set()
    for root in roots(node.inputs[at], HIDING):
        tensor = filled(root) if root.dtype in FLOATS else None
        if tensor is not None:
            array = tensor.numpy().astype(np.float64)
            found.update(array[array <= HIDES].tolist())
    return found


def _guards(model: ir.Model, way: Way) -> tuple[Guard, ...]:
    """The guards behind every softmax of a way; none if one cannot ask the mask."""
    found: list[Guard] = []
    for end in way.ends:
        site = next((s for s in way.sites if s[0].outputs[0] is end.inputs[0]), None)
        guards = guards_of(model, end, site) if site is not None else []
        if not guards:
            return ()
        found += guards
    return tuple(found)


def _along_last(end: ir.Node, model: ir.Model) -> bool:
    """Whether the softmax of a node is of rows."""
    if op_of(end) != "Softmax":
        return True
    opset = opset_of("", model.opset_imports)
    dims = dims_of(end.outputs[0])
    axis = attributes_of(end, opset)["axis"]
    return axis == -1 or (dims is not None and axis == len(dims) - 1)


def _gives_zero(end: ir.Node, old: float) -> bool:
    """Whether a row of the number gives 0 behind a softmax."""
    if op_of(end) in FUSED:
        return op_of(end) == "Attention" and old <= _LOWEST
    waiting, guarded = [end.outputs[0]], False
    while waiting:
        for user in waiting.pop().consumers():
            guarded = guarded or user.op_type == "IsNaN"
            waiting += user.outputs if user.op_type == "Cast" else []
    return guarded and math.isinf(old)


def _swallows(use: Use, old: float) -> bool:
    """Whether scores are lost when the number is added; selected, it is in their place anyway."""
    node, at = use
    mask = node.inputs[at]
    eps = _EPS.get(ir.DataType.FLOAT if mask is None or mask.dtype is None else mask.dtype, 1.0)
    return op_of(node) != "Where" and abs(old) * eps > _STEP


def _masks(end: ir.Node) -> int:
    """How many masks act before a softmax; an op that holds one may have masks of its own."""
    if op_of(end) in FUSED:
        more = end.attributes.get("is_causal")
        lengths = len(end.inputs) > 6 and present(end.inputs[6])
        return 1 if op_of(end) == "Attention" and not lengths and not (more and more.value) else 2
    stack, seen = [end.inputs[0]], set[ir.Node]()
    while stack:
        value = stack.pop()
        made = None if value is None else value.producer()
        if made is not None and op_of(made) in HIDING and made not in seen:
            seen.add(made)
            stack += made.inputs
    return sum(any(meets_scores(node, i) for i in range(len(node.inputs))) for node in seen)


def _hides_a_row(model: ir.Model, use: Use) -> bool | None:
    """Whether a mask hides a row whole; ``None`` if that comes at run time."""
    node, at = use
    selects = op_of(node) == "Where"
    mask = node.inputs[0 if selects else at]
    if mask is None:
        return None
    own, full = dims_of(mask), dims_of(node.outputs[0]) or (1,)
    repeated = own is not None and own[-1:] in {(), (1,)} and full[-1:] != (1,)
    if repeated and op_of(node) not in FUSED:
        return True
    known = computed(mask, model.opset_imports)
    if known is None:
        return None
    array = known.astype(np.float64)
    hidden = array <= HIDES if not selects else array == (at == 1)
    return bool(hidden.reshape(1, -1).all() if hidden.ndim == 0 else hidden.all(axis=-1).any())
