"""Masks that hide by a finite number, so that a row that sees nothing does not become NaN.

The rows in front of a first chunk see nothing. Their keys and values are hidden from all others,
but NaN times a weight of 0 is NaN. Below a finite number such a row has equal weights instead, and
no other row changes: its hidden keys have a weight of 0 as before.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, op_of
from rewriter.passes.hidden_rows import Masked
from rewriter.passes.stored import stored
from rewriter.rules.parts.mask_numbers import numbers_below

_FLOOR = -1e30
_FLOORS = {ir.DataType.FLOAT16: -6e4}
"""What hides a score; the sum of it and a score is finite."""


def keep_finite(model: ir.Model, masked: Masked) -> None:
    """Raise what one mask hides by, in place, if a row that it hides whole became NaN.

    Args:
        model: with types inferred.
        masked: where the mask meets the scores.
    """
    if masked.softmax is not None and _is_guarded(masked.softmax):
        return
    if op_of(masked.node) == "Where":
        _raise_selected(model, masked)
    else:
        _raise_added(model, masked)


def _raise_selected(model: ir.Model, masked: Masked) -> None:
    """Where(condition, scores, -inf)."""
    for at in (1, 2):
        hidden = constant(masked.node.inputs[at])
        if hidden is not None and _too_low(hidden.dtype, hidden.numpy().astype(np.float64).min()):
            number = np.maximum(hidden.numpy(), _floor(hidden.dtype))
            masked.node.replace_input_with(
                at, stored(model, "static_cache/floor", number, hidden.dtype)
            )


def _raise_added(model: ir.Model, masked: Masked) -> None:
    """Add(scores, mask), or the mask of an attention; one of bools or padding hides by itself."""
    mask = masked.node.inputs[masked.index]
    assert mask is not None
    dtype = mask.dtype or masked.node.outputs[0].dtype
    numbers = numbers_below(mask)
    if dtype is None or not dtype.is_floating_point():
        return
    if numbers is not None and not any(_too_low(dtype, number) for number in numbers):
        return
    name = f"{mask.name}/finite"
    finite = next((u.node.outputs[0] for u in mask.uses() if u.node.name == name), None)
    if finite is None:
        floor = stored(model, "static_cache/floor", np.array(_floor(dtype)), dtype)
        node = ir.Node("", "Max", [mask, floor], num_outputs=1, name=name)
        finite = node.outputs[0]
        finite.name, finite.shape, finite.type = name, mask.shape, ir.TensorType(dtype)
        producer = mask.producer()
        assert producer is not None
        model.graph.insert_after(producer, node)
    masked.node.replace_input_with(masked.index, finite)


def _floor(dtype: ir.DataType) -> float:
    return _FLOORS.get(dtype, _FLOOR)


def _too_low(dtype: ir.DataType, number: float) -> bool:
    """Whether a score and the number may make -inf: the lowest half, but no lowest float."""
    return number < (_floor(dtype) if dtype in _FLOORS else -3.5e38)


def _is_guarded(softmax: ir.Node) -> bool:
    """Whether Where(IsNaN(p), 0, p) stands behind a softmax."""
    waiting, seen = [softmax.outputs[0]], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for node, _ in value.uses():
            if node.op_type == "IsNaN":
                return True
            if node.op_type in {"Cast", "Identity"}:
                waiting.append(node.outputs[0])
    return False
