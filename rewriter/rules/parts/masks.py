"""Any mask of an attention in additive form: what is added to a score, at rank 4.

A float mask may hold -inf, or the lowest float of its type. Both are cut to FLOOR, so that the
sum with a score stays finite in fp16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.attention import sizes
from rewriter.rules.parts.positions import MASKED, hidden, masked_by
from rewriter.rules.parts.shorthand import axes
from rewriter.tape import Tape

FLOOR = 3 * MASKED
"""Lowest value of a float mask that stays what it is: below the -1e4 that BERT's exporters write
for a masked key, which is a number like any other, and finite with a score in fp16."""


def additive(
    op: Tape, mask: ir.Value, keys: int, dtype: ir.DataType, floor: float | None = None,
    beyond: float | None = None,
) -> ir.Value:  # fmt: skip
    """A mask in additive form, at rank 4, as long as the keys.

    Args:
        op: the tape.
        mask: bool or a number to add.
        keys: T.
        dtype: of the scores.
        floor: what hides a key, and the lowest value that stays; if not given, what hides for
            a bool mask, else FLOOR.
        beyond: what hides a key that the mask is too short for; if not given, the floor.
    """
    assert mask.shape is not None
    if missing := range(4 - len(mask.shape)):
        mask = op.Unsqueeze(mask, axes(op, *missing))
    floor = floor or (masked_by(op) if mask.dtype == ir.DataType.BOOL else FLOOR)
    if mask.dtype == ir.DataType.BOOL:
        mask = hidden(op, mask, dtype, floor)
    else:
        mask = mask if mask.dtype == dtype else op.Cast(mask, to=dtype)
        if np.isfinite(floor):
            mask = op.Max(mask, op.const(np.float32(floor), dtype, name="floor"))
    *block, columns = static_dims(mask) if sizes(mask)[3] < keys else sizes(mask)
    if columns == keys:
        return mask
    # Not Pad: on HTP an Expand behind it puts 0 in the place of what was padded.
    rest = np.full((*block, keys - columns), floor if beyond is None else beyond)
    return op.Concat(mask, op.const(rest, dtype, name="beyond"), axis=3)


def padded(stored: ir.TensorProtocol, keys: int) -> npt.NDArray[Any]:
    """A constant mask in additive form, -inf for a hidden key, at rank 4, as long as the keys."""
    array = stored.numpy()
    if array.dtype == np.bool_:
        array = np.where(array, 0.0, -np.inf)
    array = array.astype(np.float64).reshape((1,) * (4 - array.ndim) + array.shape)
    missing = keys - array.shape[-1]
    return np.pad(array, ((0, 0),) * 3 + ((0, missing),), constant_values=-np.inf)
