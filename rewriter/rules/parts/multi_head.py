"""What MultiHeadAttention, Attention and DecoderMaskedMultiHeadAttention of com.microsoft share.

softmax(scale·q·kᵀ + hidden + attention_bias)·v, as ONNX Runtime 1.32 computes it on the CPU:

* hidden is ``mask_filter_value`` for a key that a mask hides, so that a row of nothing but padding
  is the softmax of its scores; and the lowest float for a later key, of which nothing is left.
* A mask is int32: flags (B, T) or (B, S, T); ends (B); or the lengths of packed sequences
  (3B + 2), whose first B are ends. Attention also takes ends and starts (2B).

The keys and values are those of :mod:`rewriter.rules.parts.multi_head_cache`.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts import attention, positions
from rewriter.rules.parts.multi_head_cache import Rows
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape

EMITS = (
    "Add", "Concat", "Expand", "Greater", "GreaterOrEqual", "And", "Less", "LessOrEqual", "MatMul",
    "Mul", "Reshape", "ScatterElements", "Slice", "Softmax", "Split", "Transpose", "Unsqueeze",
    "Where",
)  # fmt: skip
"""All that a rule emits which is made of these parts and of the cache's."""


def read_seen(
    op: Tape, site: Site, name: str, query: ir.Value, rows: Rows, *, starts: bool = False
) -> ir.Value | None:
    """Keys (B, 1, 1 or S, T) that a mask leaves to be seen; ``starts`` if it may be (2B)."""
    mask = site.optional(name)
    if mask is None:
        return None
    batch, _, tokens, _ = static_dims(query)
    keys, shape = static_dims(rows.keys)[2], site.shape(mask, name)
    if shape in {(batch, keys), (batch, tokens, keys)}:
        block = (batch, 1, tokens if len(shape) == 3 else 1, keys)
        flags = reshaped(op, mask, block, "mask_shape")
        return op.Greater(flags, op.const(0, mask.dtype, name="padding"))
    lengths = {(batch,), (3 * batch + 2,)} | ({(2 * batch,)} if starts else set())
    site.require(shape in lengths, f"{name} {shape} is not handled")
    columns = op.const(np.array([batch, 1, 1, 1], np.int64), name="mask_shape")
    key = op.const(np.arange(keys)[None, None, None], mask.dtype, name="keys")
    ends = mask if shape == (batch,) else sliced(op, mask, 0, batch, 0)
    seen = op.Less(key, op.Reshape(ends, columns))
    if shape != (2 * batch,):
        return seen
    first = op.Reshape(sliced(op, mask, batch, 2 * batch, 0), columns)
    return op.And(seen, op.GreaterOrEqual(key, first))


def hidden(
    op: Tape, site: Site, query: ir.Value, rows: Rows, seen: ir.Value | None, *, causal: bool
) -> ir.Value | None:
    """What is added to scores (B, H, S, T) for the keys that are hidden; 0 for the others."""
    keys, dtype = static_dims(rows.keys)[2], query.dtype
    assert dtype is not None
    filtered, far = site.number("mask_filter_value", -10000.0), positions.masked_by(op)
    filtered = filtered if op.masked is None else max(filtered, far)
    added = op.const(np.float32(0), dtype, name="seen")
    if seen is not None:
        added = op.Where(seen, added, op.const(np.float32(filtered), dtype, name="padding"))
    where, tokens = rows.where, static_dims(query)[2]
    if causal and where is None:
        row = np.arange(rows.first, rows.first + tokens, dtype=np.int32)
        where = op.const(row[None], name="positions")
    elif where is not None and not causal:
        new = static_dims(where)[1]
        where = sliced(op, where, new - 1, new, 1)
    if where is None:
        return added if seen is not None else None
    lowest = max(min(3 * far, filtered + 2 * far), float(dtype.min))
    written = positions.visible(op, where, keys, -1, 0)
    return op.Where(written, added, op.const(lowest, dtype, name="later"))


def read_bias(site: Site, query: ir.Value, rows: Rows) -> ir.Value | None:
    """``attention_bias`` (B or 1, H or 1, S, T)."""
    bias = site.optional("attention_bias")
    if bias is None:
        return None
    batch, heads, tokens, _ = static_dims(query)
    keys, dims = static_dims(rows.keys)[2], site.shape(bias, "attention_bias")
    fits = len(dims) == 4 and dims[0] in {1, batch} and dims[1] in {1, heads}
    site.require(
        fits and dims[2:] == (tokens, keys),
        f"attention_bias {dims} does not fit {tokens} tokens and {keys} keys",
    )
    return bias


def mixed(
    op: Tape, site: Site, query: ir.Value, rows: Rows, added: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Y (B, S, H·Dv), and the scores (B, H, S, T) before the softmax."""
    scale = site.number("scale", 0.0) or 1 / math.sqrt(static_dims(query)[3])
    scores = attention.scores(op, query, rows.keys, scale)
    for more in (added, read_bias(site, query, rows)):
        scores = scores if more is None else op.Add(scores, more)
    y = op.MatMul(op.Softmax(scores, axis=-1), rows.values)
    return attention.from_heads(op, y), scores
