"""Scaled dot-product attention with grouped heads, its products at rank 4.

The query heads that share a key head are folded into rows, so that no key or value is repeated:
h = k·G + g, hence (B, Hq, S, D) read as (B, Hk, G·S, D) is the same memory. Only the batch may
be known at run time alone.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of, static_dims
from rewriter.rules.parts.shorthand import reshaped
from rewriter.tape import Tape


def sizes(x: ir.Value) -> tuple[int, ...]:
    """Dims of a value as Reshape takes them: a batch that is not a number is 0, kept as it is.

    Raises:
        ValueError: another dim is not a number, or the rank is unknown.
    """
    dims = dims_of(x)
    if dims is not None and dims and dims[0] is None and None not in dims[1:]:
        return (0, *(d for d in dims[1:] if d is not None))
    return static_dims(x)


def to_heads(op: Tape, x: ir.Value, heads: int) -> ir.Value:
    """(B, S, H·D) as (B, H, S, D)."""
    batch, tokens, width = sizes(x)
    size = width // heads
    if tokens == 1:  # the same memory, no transposition needed
        return reshaped(op, x, (batch, heads, 1, size))
    return op.Transpose(reshaped(op, x, (batch, tokens, heads, size)), perm=[0, 2, 1, 3])


def from_heads(op: Tape, x: ir.Value) -> ir.Value:
    """(B, H, S, D) as (B, S, H·D)."""
    batch, heads, tokens, size = sizes(x)
    if tokens > 1:
        x = op.Transpose(x, perm=[0, 2, 1, 3])
    return reshaped(op, x, (batch, tokens, heads * size))


def scores(op: Tape, query: ir.Value, key: ir.Value, scale: float) -> ir.Value:
    """scale·q·kᵀ as (B, Hk, G·S, T), for q (B, Hq, S, D) and k (B, Hk, T, D)."""
    batch, heads, tokens, size = sizes(query)
    kv_heads = sizes(key)[1]
    if scale != 1:
        assert query.dtype is not None
        query = op.Mul(query, op.const(scale, query.dtype, name="scale"))
    if heads != kv_heads:
        query = reshaped(op, query, (batch, kv_heads, heads // kv_heads * tokens, size))
    return op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))


def by_heads(op: Tape, x: ir.Value, heads: int) -> ir.Value:
    """(B, Hk, G·S, N) as (B, Hq, S, N)."""
    batch, kv_heads, rows, size = sizes(x)
    if heads == kv_heads:
        return x
    return reshaped(op, x, (batch, heads, rows * kv_heads // heads, size))


def in_rows(op: Tape, mask: ir.Value, groups: int, tokens: int) -> ir.Value:
    """A mask (B, 1 or Hq, 1 or S, N) for scores (B, Hk, G·S, T); what broadcasts stays short."""
    batch, heads, rows, size = sizes(mask)
    if groups == 1 or (heads == 1 and rows == 1):
        return mask
    if heads == 1 or rows < tokens:
        shape = np.array([1, max(heads, groups), tokens, size], np.int64)
        mask = op.Expand(mask, op.const(shape, name="rows"))
    return reshaped(op, mask, (batch, heads // groups or 1, groups * tokens, size))
