"""com.microsoft MultiHeadAttention to primitives.

output = softmax(scale·q·kᵀ + bias)·v, where q, k and v are the inputs plus their part of ``bias``,
k and v follow the past rows, and bias is attention_bias plus mask_filter_value for each key that
``key_padding_mask`` or ``unidirectional`` hides (ORT contrib schema, ``multihead_attention.cc``).
A row that sees no key is not 0 but the softmax of its scores: what is added is one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.facts import static_dims
from rewriter.rule import lowers
from rewriter.rules.parts import attention, masks, positions
from rewriter.site import Site
from rewriter.tape import Tape


def _heads(op: Tape, site: Site, heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query (B, H, S, D), key (B, H, L, D) and value (B, H, L, Dv); the last two may be so."""
    query, key, value = (site.optional(name) for name in ("query", "key", "value"))
    packed = "query, key and value packed into one another are not handled"
    if query is None or key is None or value is None:
        site.refuse(packed)
    found = [query, key, value]
    shapes = [site.shape(x, name) for x, name in zip(found, ("query", "key", "value"), strict=True)]
    ranks = tuple(map(len, shapes))
    site.require(ranks in {(3, 3, 3), (3, 4, 4)}, packed)
    bias = site.optional("bias")
    if bias is not None:
        site.require(ranks == (3, 3, 3), "bias with key and value split into heads is not legal")
        widths = op.const(np.array([shape[2] for shape in shapes], np.int64), name="widths")
        parts = op.emit("Split", (bias, widths), {"axis": 0}, outputs=3)
        found = [op.Add(x, part) for x, part in zip(found, parts, strict=True)]
    query, key, value = (
        x if len(static_dims(x)) == 4 else attention.to_heads(op, x, heads) for x in found
    )
    return query, key, value


def _after_past(op: Tape, site: Site, name: str, new: ir.Value) -> ir.Value:
    past = site.optional(name)
    if past is None or site.shape(past, name)[2] == 0:
        return new
    return op.Concat(past, new, axis=2)


def _unpadded(op: Tape, site: Site, batch: int, tokens: int, keys: int) -> ir.Value | None:
    """Keys (B, 1, 1 or S, T) that ``key_padding_mask`` leaves to be seen."""
    mask = site.optional("key_padding_mask")
    if mask is None:
        return None
    shape = site.shape(mask, "key_padding_mask")
    blocks = {(batch,): 1, (batch, keys): keys, (batch, tokens, keys): keys}
    site.require(shape in blocks, f"key_padding_mask {shape} is not handled")
    block = (batch, 1, tokens if len(shape) == 3 else 1, blocks[shape])
    spread = op.Reshape(mask, op.const(np.array(block, np.int64), name="mask_shape"))
    if len(shape) > 1:
        return op.Greater(spread, op.const(np.int32(0), name="padding"))
    key = op.const(np.arange(keys, dtype=np.int32)[None, None, None], name="keys")
    return op.Less(key, spread)


def _hidden(op: Tape, site: Site, query: ir.Value, key: ir.Value) -> ir.Value | None:
    """What is added to scores (B, H, S, T) for the keys that are hidden; 0 for the others.

    Padding adds ``mask_filter_value``, so that a row of nothing but padding is the softmax of its
    scores; ``unidirectional`` sets the lowest float, of which nothing is left even there.
    """
    batch, _, tokens, _ = static_dims(query)
    keys, dtype = static_dims(key)[2], query.dtype
    assert dtype is not None
    number = site.number("mask_filter_value", -10000.0)
    added = op.const(np.float32(0), dtype, name="seen")
    unpadded = _unpadded(op, site, batch, tokens, keys)
    if unpadded is not None:
        added = op.Where(unpadded, added, op.const(np.float32(number), dtype, name="padding"))
    if not site.integer("unidirectional"):
        return added if unpadded is not None else None
    lowest = max(min(masks.FLOOR, number + 2 * positions.MASKED), float(dtype.min))
    where = op.const(np.arange(keys - tokens, keys, dtype=np.int32)[None], name="positions")
    causal = positions.visible(op, where, keys, -1, 0)
    return op.Where(causal, added, op.const(lowest, dtype, name="later"))


@lowers(
    "com.microsoft::MultiHeadAttention",
    emits=(
        "Add", "Concat", "Greater", "Less", "LessOrEqual", "MatMul", "Mul", "Reshape",
        "Softmax", "Split", "Transpose", "Unsqueeze", "Where",
    ),
    opset=16,
)  # fmt: skip
def attention_of_heads(op: Tape, site: Site) -> Sequence[ir.Value]:
    """Softmax(scale·q·kᵀ + attention_bias + hidden)·v."""
    query, key, value = _heads(op, site, site.integer("num_heads"))
    scale = site.number("scale", 0.0) or 1 / math.sqrt(static_dims(query)[3])
    keys = _after_past(op, site, "past_key", key)
    values = _after_past(op, site, "past_value", value)
    scores = attention.scores(op, query, keys, scale)
    for added in (_hidden(op, site, query, keys), site.optional("attention_bias")):
        scores = scores if added is None else op.Add(scores, added)
    mixed = op.MatMul(op.Softmax(scores, axis=-1), values)
    return attention.from_heads(op, mixed), keys, values
