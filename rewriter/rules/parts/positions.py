"""Positions of new tokens and which keys they may see, counted and compared in integers.

In float they are off by one above 2,048 on HTP, whose arithmetic is fp16 (lowering.md, trap 1).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.facts import static_dims
from rewriter.tape import Tape

MASKED = -1e4
"""What is added to the score of a key that must not be seen: finite after the addition in fp16
(largest 65504), and far enough below any score for its softmax to be exactly 0."""


def first_positions(op: Tape, tokens: int) -> ir.Value:
    """Positions (1, S) int32 of a first prompt: 0, 1, ... S - 1."""
    return op.const(np.arange(tokens, dtype=np.int32)[None, :], name="positions")


def next_positions(op: Tape, last: ir.Value, tokens: int) -> ir.Value:
    """Positions (B, S) int32 of tokens that end at ``last`` (B or (B, 1), int32, inclusive)."""

    def build() -> ir.Value:
        column = op.Reshape(last, op.const(np.array([-1, 1], np.int64), name="column"))
        steps = np.arange(tokens, dtype=np.int32)[None, :] - (tokens - 1)
        return op.Add(column, op.const(steps, name="steps"))

    return op.once(("positions", last, tokens), build)


def causal_mask(
    op: Tape, positions: ir.Value, keys: int, window: int, groups: int, dtype: ir.DataType
) -> ir.Value:
    """Additive mask (B, 1, G·S, T): 0 where position - window < key <= position, else MASKED.

    Args:
        op: the tape.
        positions: (B, S) int32.
        keys: T; key j stands at position j.
        window: keys a token sees, itself included; -1 for all.
        groups: G; rows repeat for the query heads that share a key head. For S = 1 the rows
            broadcast and are not repeated.
        dtype: of the scores.
    """

    def build() -> ir.Value:
        batch, tokens = static_dims(positions)
        query = op.Unsqueeze(positions, op.const(np.array([1, 3], np.int64), name="axes"))
        key = op.const(np.arange(keys, dtype=np.int32)[None, None, None, :], name="keys")
        seen = op.LessOrEqual(key, query)
        if window > 0:
            oldest = op.Sub(query, op.const(np.int32(window), name="window"))
            seen = op.And(seen, op.Less(oldest, key))
        zero = op.const(np.float32(0), dtype, name="zero")
        masked = op.const(np.float32(MASKED), dtype, name="masked")
        mask = op.Where(seen, zero, masked)
        if tokens == 1 or groups == 1:
            return mask
        shape = op.const(np.array([batch, groups, tokens, keys], np.int64), name="rows")
        folded = op.const(np.array([batch, 1, groups * tokens, keys], np.int64), name="folded")
        return op.Reshape(op.Expand(mask, shape), folded)

    return op.once(("mask", positions, keys, window, groups, dtype), build)
