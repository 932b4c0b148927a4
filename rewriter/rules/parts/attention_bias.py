"""What is added to the scores of an attention: any mask, and what positions and lengths hide.

bias = mask where a key is seen, else MASKED (or the mask value that was asked for), for scores
(B, Hk, G·S, T). A row that sees no key gives 0 as the standard asks: its softmax would be the mean
of the hidden values. Where no row can be empty (or nothing is hidden) no node says so. A row that
is nowhere above half of FLOOR is empty: so is a row of the lowest float in ONNX Runtime 1.32, which
onnx's reference takes for a number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.facts import constant
from rewriter.rules.parts.attention import in_rows
from rewriter.rules.parts.masks import FLOOR, additive, padded
from rewriter.rules.parts.positions import hidden, masked_by
from rewriter.rules.parts.sight import Sight
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Bias:
    """What to do to scores (B, Hk, G·S, T).

    Attributes:
        added: to add before the softmax; ``None`` where every key of every row is seen.
        alive: (·, ·, G·S, 1) to multiply the result with: 0 for rows that see no key;
            ``None`` where there are none.
    """

    added: ir.Value | None = None
    alive: ir.Value | None = None


def bias(
    op: Tape,
    mask: ir.Value | None,
    sight: Sight,
    groups: int,
    dtype: ir.DataType,
    *,
    exact: bool = False,
) -> Bias:
    """The bias of a mask (dims that broadcast to (B, Hq, S, up to T)) and of positions.

    Keys beyond a mask's last dim are masked; a mask that is that short has fixed dims. What is
    known now is computed now, and what equal layers share is built once.

    Args:
        op: the tape.
        mask: bool (True is seen) or a number to add.
        sight: what positions and lengths hide.
        groups: G.
        dtype: of the scores.
        exact: as the standard has it, -inf for hidden keys, and nothing said of empty rows.
    """
    floor = masked_by(op) if mask is None or mask.dtype == ir.DataType.BOOL else FLOOR
    if exact:
        floor = -np.inf

    def build() -> Bias:
        stored, seen = constant(mask), sight.known()
        if seen is not None and (mask is None or stored is not None):
            return _known(op, stored, sight, seen, groups, dtype, floor)
        added = None if mask is None else additive(op, mask, sight.keys, dtype, floor)
        shown = None if seen is not None and seen.all() else sight.built(op)
        if shown is not None:
            masked = op.const(np.float32(floor), dtype, name="masked")
            added = (
                hidden(op, shown, dtype, floor) if added is None else op.Where(shown, added, masked)
            )
        assert added is not None
        added = in_rows(op, added, groups, sight.tokens)
        if exact:
            return Bias(added)
        axis = op.const(np.array([-1], np.int64), name="keys_axis")
        best = op.ReduceMax(added, axis, keepdims=1)
        alive = op.Greater(best, op.const(np.float32(floor / 2), dtype, name="empty"))
        return Bias(added, op.Cast(alive, to=dtype))

    return op.once(("bias", mask, sight, groups, dtype, exact), build)


def _known(
    op: Tape,
    stored: ir.TensorProtocol | None,
    sight: Sight,
    seen: npt.NDArray[np.bool_],
    groups: int,
    dtype: ir.DataType,
    floor: float,
) -> Bias:
    """The bias of what is constant; a mask is stored anew, a triangle is computed from integers."""
    if seen.all() and stored is None:
        return Bias()
    if stored is None:
        shown = sight.built(op)
        assert shown is not None
        added, alive = hidden(op, shown, dtype, floor), seen.any(axis=-1, keepdims=True)
    else:
        array = np.where(seen, padded(stored, sight.keys, floor), floor)
        if not array.any():
            return Bias()
        added = op.const(array, dtype, name="bias")
        alive = array.max(axis=-1, keepdims=True) > floor / 2
    added = in_rows(op, added, groups, sight.tokens)
    if alive.all() or np.isneginf(floor):
        return Bias(added)
    rows = op.const(alive, dtype, name="alive")
    return Bias(added, in_rows(op, rows, groups, sight.tokens))
