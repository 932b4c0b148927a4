"""Positions of new tokens and which keys they may see, counted and compared in integers.

In float they are off by one above 2,048 on HTP, whose arithmetic is fp16 (lowering.md, trap 1).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rules.parts.attention import in_rows, sizes
from rewriter.rules.parts.shorthand import axes, reshaped
from rewriter.tape import Tape

MASKED = -1e4
"""What is added to the score of a key that must not be seen: finite after the addition in fp16
(largest 65504), and far enough below any score for its softmax to be exactly 0."""


def masked_by(op: Tape) -> float:
    """What hides a key: the mask value that was asked for, else MASKED."""
    value = op.masked
    if value is None:
        return MASKED
    said = f"keys of fused attentions are hidden by {value:g} instead of {MASKED:g}"
    op.once("mask value", lambda: op.note(said))
    return value


def first_positions(op: Tape, tokens: int) -> ir.Value:
    """Positions (1, S) int32 of a first prompt: 0, 1, ... S - 1."""
    return op.const(np.arange(tokens, dtype=np.int32)[None, :], name="positions")


def next_positions(op: Tape, last: ir.Value, tokens: int, *, past_end: bool = False) -> ir.Value:
    """Positions (B, S) of tokens that end at ``last`` (B or (B, 1), integers of any width).

    Args:
        op: the tape.
        last: position of the last token.
        tokens: S.
        past_end: ``last`` is a length instead, the position after the last token.
    """

    def build() -> ir.Value:
        assert last.dtype is not None
        column = reshaped(op, last, (-1, 1), "column")
        steps = np.arange(tokens)[None, :] - (tokens - 1) - past_end
        return op.Add(column, op.const(steps, last.dtype, name="steps"))

    return op.once(("positions", last, tokens, past_end), build)


def visible(op: Tape, positions: ir.Value, keys: int, left: int, right: int) -> ir.Value:
    """Whether position - left <= key <= position + right, as bool (B, 1, S, T).

    Args:
        op: the tape.
        positions: (B, S), integers.
        keys: T; key j stands at position j.
        left: keys before its own that a token sees; -1 for all.
        right: keys after its own that a token sees; -1 for all.
    """

    def build() -> ir.Value:
        query = op.Unsqueeze(positions, axes(op, 1, 3))
        assert query.dtype is not None
        ranges = np.arange(keys)[None, None, None, :]
        terms = []
        if right >= 0:
            latest = op.const(ranges - right, query.dtype, name="keys")
            terms.append(op.LessOrEqual(latest, query))
        if left >= 0:
            oldest = op.const(ranges + left, query.dtype, name="keys")
            terms.append(op.LessOrEqual(query, oldest))
        return op.And(*terms) if len(terms) == 2 else terms[0]

    return op.once(("visible", positions, keys, left, right), build)


def hidden(op: Tape, seen: ir.Value, dtype: ir.DataType, masked: float | None = None) -> ir.Value:
    """The additive form of a bool mask: 0 where seen, ``masked`` (or what hides) elsewhere."""
    zero = op.const(np.float32(0), dtype, name="zero")
    floor = masked_by(op) if masked is None else masked
    return op.Where(seen, zero, op.const(np.float32(floor), dtype, name="masked"))


def causal_mask(
    op: Tape, positions: ir.Value, keys: int, window: int, groups: int, dtype: ir.DataType
) -> ir.Value:
    """Additive mask (B, 1, G·S, T): 0 where position - window < key <= position, else what hides.

    Args:
        op: the tape.
        positions: (B, S), integers.
        keys: T; key j stands at position j.
        window: keys a token sees, itself included; -1 for all.
        groups: G; rows repeat for the query heads that share a key head. For S = 1 the rows
            broadcast and are not repeated.
        dtype: of the scores.
    """

    def build() -> ir.Value:
        seen = visible(op, positions, keys, window - 1 if window > 0 else -1, 0)
        mask = hidden(op, seen, dtype)
        return in_rows(op, mask, groups, sizes(mask)[2])

    return op.once(("mask", positions, keys, window, groups, dtype), build)
