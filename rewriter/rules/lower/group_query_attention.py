"""com.microsoft GroupQueryAttention to primitives.

y = softmax(softcap·tanh(scale·q·kᵀ / softcap) + attention_bias + mask; head_sink)·v. Semantics as
ONNX Runtime 1.32 computes them: ``seqlens_k`` (B) is the position of the last valid token; with
S = total the node is a first prompt at positions 0..S-1, else its tokens end at ``seqlens_k``.
New keys are rotated (by ``position_ids`` where they are given), then written at their positions
into a cache whose capacity may exceed the valid length; query head h uses key head h // G; a
window of W counts the token itself. Outputs of right-padded rows and unwritten cache rows are
unspecified. Q/K norm weights, quantized caches and causal=0 are refused: ONNX Runtime's CPU
kernel, the oracle, has none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import attention, cache, grouped_query, positions, softmax, window_cache
from rewriter.rules.parts.grouped_query import Sizes
from rewriter.site import Site
from rewriter.tape import Tape

_EMITS = (
    "Add", "And", "Cast", "Concat", "Expand", "Gather", "LessOrEqual", "MatMul", "Max", "Mul",
    "Reshape", "ScatterElements", "Slice", "Softmax", "Split", "Sub", "Tanh", "Transpose",
    "Unsqueeze", "Where",
)  # fmt: skip


@lowers("com.microsoft::GroupQueryAttention", emits=_EMITS, opset=13)
def attention_primitives(op: Tape, site: Site) -> Sequence[ir.Value]:
    """Rotate, write the cache, then grouped attention over it."""
    sizes = grouped_query.read_sizes(site)
    query, key, value = grouped_query.read_heads(op, site, sizes)
    where = _positions(op, site, sizes)
    query, key = grouped_query.rotated(op, site, where, query, key)

    def present(past: ir.Value | None, new: ir.Value) -> ir.Value:
        if sizes.first_prompt:
            return cache.write_first(op, past, new, sizes.present)
        return cache.write(op, past, new, where, sizes.present)

    keys = present(site.optional("past_key"), key)
    values = present(site.optional("past_value"), value)
    return _mixed(op, site, sizes, where, (query, keys, values)), keys, values


@lowers(
    "com.microsoft::GroupQueryAttention",
    emits=(*_EMITS, "Div", "GatherElements", "Min"),
    form="sliding_window_cache=1",
    order=-1,
    opset=13,
)
def attention_in_a_window(op: Tape, site: Site) -> Sequence[ir.Value]:
    """The same over a buffer that keeps the newest rows only."""
    sizes = grouped_query.read_sizes(site)
    site.integer("sliding_window_cache")
    capacity, window = sizes.capacity, sizes.window
    site.require(window > 0, "sliding_window_cache=1 without local_window_size")
    site.require(
        capacity >= window, f"a cache of {capacity} rows is shorter than the window, {window}"
    )
    bias = site.optional("attention_bias")
    site.require(bias is None, "attention_bias over a windowed cache is not handled")
    query, key, value = grouped_query.read_heads(op, site, sizes)
    query, key = grouped_query.rotated(op, site, _positions(op, site, sizes), query, key)
    past = [site.input(name) for name in ("past_key", "past_value")]
    if sizes.first_prompt:
        rows = positions.first_positions(op, sizes.tokens)
        presents = [
            window_cache.write_first(op, old, new, window)
            for old, new in zip(past, (key, value), strict=True)
        ]
    else:
        last = site.input("seqlens_k")
        buffer = window_cache.WindowCache(last, sizes.tokens, capacity, window)
        rows = buffer.rows(op)
        (key, new_key), (value, new_value) = (
            buffer.write(op, old, new) for old, new in zip(past, (key, value), strict=True)
        )
        presents = [new_key, new_value]
    return _mixed(op, site, sizes, rows, (query, key, value)), *presents


def _positions(op: Tape, site: Site, sizes: Sizes) -> ir.Value:
    """Positions (B or 1, S) of the new tokens."""
    last = site.input("seqlens_k")
    if sizes.first_prompt:
        return positions.first_positions(op, sizes.tokens)
    return positions.next_positions(op, last, sizes.tokens)


def _mixed(
    op: Tape, site: Site, sizes: Sizes, rows: ir.Value, heads: tuple[ir.Value, ir.Value, ir.Value]
) -> ir.Value:
    """The attention itself, for query tokens at ``rows`` of the keys."""
    query, keys, values = heads
    length, dtype = attention.sizes(keys)[2], query.dtype
    assert dtype is not None
    scale = site.number("scale", 0.0) or 1 / math.sqrt(sizes.size)
    cap = site.number("softcap", 0.0)
    scores = attention.scores(op, query, keys, scale / (cap or 1))
    if cap:
        scores = op.Mul(op.Tanh(scores), op.const(cap, dtype, name="softcap"))
    bias = grouped_query.read_bias(op, site, sizes, length)
    if bias is not None:
        scores = op.Add(scores, bias)
    mask = positions.causal_mask(op, rows, length, sizes.window, sizes.groups, dtype)
    sink = grouped_query.read_sink(op, site, sizes, dtype)
    weights = softmax.softmax(op, op.Add(scores, mask), sink)
    mixed = attention.by_heads(op, op.MatMul(weights, values), sizes.heads)
    return attention.from_heads(op, mixed)
