"""What is added to the scores of an attention: any mask, and what positions and lengths hide.

bias = mask where a key is seen, else MASKED (or the mask value that was asked for), for scores
(B, Hk, G·S, T). What becomes of a row that sees no key depends on what hides it:

* a bool, -inf, a position or a length: it gives 0 as the standard asks, and its softmax would be
  the mean of the hidden values. So does a row of the lowest float in ONNX Runtime 1.32, which
  onnx's reference takes for a number;
* a number that swallows the scores, as -1e9 does in float32: equal weights;
* any other number: the weights of the scores, as if nothing were added. The sum would round them
  in fp16, so the largest number of a row is taken off before: a softmax does not see that.

Where no row can be empty (or nothing is hidden) no node says so. Where the nodes that make a mask
do not tell its numbers, or they are of several of these kinds, a row that is nowhere above half of
FLOOR gives 0: in fp16 -1e9 is -inf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rules.parts.attention import in_rows
from rewriter.rules.parts.mask_numbers import LOWEST, SWALLOWS, hidden_whole
from rewriter.rules.parts.masks import FLOOR, additive, padded
from rewriter.rules.parts.positions import hidden, masked_by
from rewriter.rules.parts.sight import Sight
from rewriter.shown_rows import LOW
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Bias:
    """What to do to scores (B, Hk, G·S, T).

    Attributes:
        added: to add before the softmax; ``None`` where every key of every row is seen.
        alive: (·, ·, G·S, 1) to multiply the result with: 0 for rows that see no key;
            ``None`` where there are none.
        scored: of the same shape, to multiply the scores with before: 0 for rows whose weights
            are equal; ``None`` where there are none.
    """

    added: ir.Value | None = None
    alive: ir.Value | None = None
    scored: ir.Value | None = None


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
        return _computed(op, mask, sight, groups, dtype, floor)

    return op.once(("bias", mask, sight, groups, dtype, exact), build)


def _computed(
    op: Tape, mask: ir.Value | None, sight: Sight, groups: int, dtype: ir.DataType, floor: float
) -> Bias:
    """The bias of what comes at run time; ``floor`` is -inf where nothing is said of rows."""
    numbers = mask is not None and mask.dtype != ir.DataType.BOOL
    beyond = 2 * floor if numbers else floor
    added = None if mask is None else additive(op, mask, sight.keys, dtype, floor, beyond)
    seen = sight.known()
    shown = None if seen is not None and seen.all() else sight.built(op)
    if shown is not None:
        masked = op.const(np.float32(beyond), dtype, name="masked")
        added = hidden(op, shown, dtype, floor) if added is None else op.Where(shown, added, masked)
    assert added is not None
    added = in_rows(op, added, groups, sight.tokens)
    if np.isneginf(floor):
        return Bias(added)
    best = op.ReduceMax(added, op.const(np.array([-1], np.int64), name="keys_axis"), keepdims=1)

    def above(bound: float) -> ir.Value:
        return op.Cast(op.Greater(best, op.const(np.float32(bound), dtype, name="empty")), to=dtype)

    if mask is None or not numbers:
        return Bias(added, above(floor / 2))
    added = op.Sub(added, best)
    zero, even = hidden_whole(mask, floor / 2)
    if zero:
        return Bias(added, above(floor / 2))
    empty = None if shown is None else above((floor + beyond) / 2)
    return Bias(added, empty, above(floor / 2) if even else None)


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
    if stored is None:
        if seen.all():
            return Bias()
        shown = sight.built(op)
        assert shown is not None
        added, dead = hidden(op, shown, dtype, floor), ~np.asarray(seen.any(axis=-1, keepdims=True))
        even = np.zeros_like(dead)
    else:
        array = np.where(seen, padded(stored, sight.keys), -np.inf)
        best = array.max(axis=-1, keepdims=True)
        dead = np.asarray(best <= LOWEST.get(stored.dtype, -np.inf))
        even = np.asarray((best <= SWALLOWS) & ~dead)
        if np.isfinite(floor):
            raised = np.where((best <= LOW) & ~dead, best, 0)
            array = np.maximum(np.where(dead, 0, array - raised), floor)
        if not (array.any() or dead.any() or even.any()):
            return Bias()
        added = op.const(array, dtype, name="bias")
    added = in_rows(op, added, groups, sight.tokens)
    if np.isneginf(floor):
        return Bias(added)

    def rows(name: str, left_out: npt.NDArray[np.bool_]) -> ir.Value | None:
        if not left_out.any():
            return None
        return in_rows(op, op.const(~left_out, dtype, name=name), groups, sight.tokens)

    return Bias(added, rows("alive", dead), rows("scored", even))
