"""The mask of a written-out attention as the mask that an Attention adds.

A mask hides a key by a number far below the scores. Added to any score it gives weight 0, unless
the row hides every key; then the number decides: -inf gives NaN (0 behind torch's guard), a number
that swallows the scores equal weights, -1e4 the weights of a row without a mask. An Attention that
adds the same mask gives the same, with two exceptions: 0 for -inf, and in ONNX Runtime 1.32 (not
in onnx's reference or OpenVINO) 0 for the lowest float, too. So -inf stays as it is (0 is what the
guard asks for, and NaN is no answer to keep), and another number that swallows the scores takes
the place of the lowest float.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.mask_numbers import LOWEST, numbers_below, sees_in_every_row
from rewriter.site import Site
from rewriter.tape import Tape

_SWALLOWS, _SWALLOWING = -1e20, -1e30
"""At or below the first a float32 does not change when a score is added; the second is used."""


def added_mask(
    op: Tape, site: Site, mask: ir.Value, scores: ir.Value, *, guarded: bool
) -> ir.Value:
    """A mask that is added to scores (B, H, S, T).

    Args:
        op: the tape.
        site: to refuse at.
        mask: of the scores' type.
        scores: what it is added to, of float or float16.
        guarded: NaN becomes 0 after the softmax.
    """
    _check_fit(site, mask, scores)
    hiding = numbers_below(mask)
    if hiding is None:
        site.refuse("what the mask holds where it hides a key is not known")
    assert scores.dtype is not None
    lowest = LOWEST[scores.dtype]
    finite = {number for number in hiding if math.isfinite(number)}
    if not sees_in_every_row(mask, site.opset):
        site.require(
            not guarded or not finite, "rows are guarded against NaN, and hidden by a number"
        )
        if lowest in finite:
            alone = finite == hiding and scores.dtype == ir.DataType.FLOAT
            site.require(alone, "a row that is hidden by the lowest number gives 0 in ONNX Runtime")
            number = op.const(_SWALLOWING, scores.dtype, name="hidden")
            mask = op.once(("fused mask", mask), lambda: op.Max(mask, number))
    return _in_full(op, mask, scores)


def selected_mask(
    op: Tape, site: Site, condition: ir.Value, scores: ir.Value, number: float,
    *, seen: bool, guarded: bool,
) -> ir.Value:  # fmt: skip
    """The mask to add where a condition selects a number in the place of a score.

    Args:
        op: the tape.
        site: to refuse at.
        condition: bool, True for keys that are seen, or for those that are not.
        scores: what it selects from, of float or float16.
        number: what a hidden score becomes.
        seen: which of the two the condition says.
        guarded: NaN becomes 0 after the softmax.
    """
    _check_fit(site, condition, scores)
    dtype = scores.dtype
    assert dtype is not None
    if number > -math.inf and not sees_in_every_row(condition, site.opset, seen=seen):
        site.require(not guarded, "rows are guarded against NaN, and hidden by a number")
        swallows = dtype == ir.DataType.FLOAT and number <= _SWALLOWS
        site.require(swallows, f"a hidden score becomes {number:g}, which is no -inf")
        number = max(number, _SWALLOWING)
    elif number > -math.inf:
        far = number <= max(LOWEST[dtype], _SWALLOWS)
        site.require(far, f"a hidden score becomes {number:g}, which is no -inf")

    def build() -> ir.Value:
        zero, hidden = (op.const(x, dtype, name="masked") for x in (0.0, number))
        return op.Where(condition, *((zero, hidden) if seen else (hidden, zero)))

    mask = op.once(("fused mask", condition, number, seen, dtype), build)
    return _in_full(op, mask, scores)


def _in_full(op: Tape, mask: ir.Value, scores: ir.Value) -> ir.Value:
    """A row for every query: ONNX Runtime's Attention does not repeat one."""
    own, tokens = dims_of(mask) or (), (dims_of(scores) or ())[2]
    if own[-2] == tokens:
        return mask
    shape = np.array([*own[:-2], tokens, own[-1]], np.int64)
    return op.once(
        ("fused mask rows", mask, tokens), lambda: op.Expand(mask, op.const(shape, name="rows"))
    )


def _check_fit(site: Site, mask: ir.Value, scores: ir.Value) -> None:
    """The mask broadcasts to (B, H, S, T), and is T long: an Attention fills up a shorter one."""
    own, full = dims_of(mask), dims_of(scores)
    fits = own is not None and full is not None and 2 <= len(own) <= 4 and own[-1] == full[-1]
    if fits and own is not None and full is not None:
        pairs = zip(reversed(own), reversed(full), strict=False)
        fits = all(mine is not None and mine in {1, theirs} for mine, theirs in pairs)
    site.require(fits, f"the mask {mask.shape} does not fit scores {scores.shape}")
