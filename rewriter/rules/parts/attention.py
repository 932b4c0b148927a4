"""Scaled dot-product attention with grouped heads, its products at rank 4.

The query heads that share a key head are folded into rows, so that no key or value is repeated:
h = k·G + g, hence (B, Hq, S, D) read as (B, Hk, G·S, D) is the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.facts import static_dims
from rewriter.tape import Tape


def to_heads(op: Tape, x: ir.Value, heads: int) -> ir.Value:
    """(B, S, H·D) as (B, H, S, D)."""
    batch, tokens, width = static_dims(x)
    size = width // heads
    if tokens == 1:  # the same memory, no transposition needed
        return _reshape(op, x, (batch, heads, 1, size))
    return op.Transpose(_reshape(op, x, (batch, tokens, heads, size)), perm=[0, 2, 1, 3])


def from_heads(op: Tape, x: ir.Value) -> ir.Value:
    """(B, H, S, D) as (B, S, H·D)."""
    batch, heads, tokens, size = static_dims(x)
    if tokens > 1:
        x = op.Transpose(x, perm=[0, 2, 1, 3])
    return _reshape(op, x, (batch, tokens, heads * size))


def grouped(
    op: Tape, query: ir.Value, key: ir.Value, value: ir.Value, mask: ir.Value, scale: float
) -> ir.Value:
    """softmax(scale·q·kᵀ + mask)·v for q (B, Hq, S, D), k and v (B, Hk, T, ·), as (B, Hq, S, Dv).

    Args:
        op: the tape.
        query: (B, Hq, S, D).
        key: (B, Hk, T, D).
        value: (B, Hk, T, Dv).
        mask: additive, broadcast to (B, Hk, G·S, T); rows ordered by group, then token.
        scale: multiplies the query, which is smaller than the scores.
    """
    batch, heads, tokens, size = static_dims(query)
    kv_heads, out_size = static_dims(key)[1], static_dims(value)[3]
    assert query.dtype is not None
    scaled = op.Mul(query, op.const(np.float32(scale), query.dtype, name="scale"))
    rows = heads // kv_heads * tokens
    if heads != kv_heads:
        scaled = _reshape(op, scaled, (batch, kv_heads, rows, size))
    scores = op.MatMul(scaled, op.Transpose(key, perm=[0, 1, 3, 2]))
    weights = op.Softmax(op.Add(scores, mask), axis=-1)
    mixed = op.MatMul(weights, value)
    return _reshape(op, mixed, (batch, heads, tokens, out_size)) if heads != kv_heads else mixed


def _reshape(op: Tape, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    return op.Reshape(x, op.const(np.array(shape, np.int64), name="shape"))
