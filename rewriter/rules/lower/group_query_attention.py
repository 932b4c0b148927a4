"""com.microsoft GroupQueryAttention to primitives.

y = softmax(softcap·tanh(scale·q·kᵀ / softcap) + attention_bias + mask; head_sink)·v. Semantics as
ONNX Runtime 1.32 computes them: ``seqlens_k`` (B) is the position of the last valid token; with
S = total the node is a first prompt at positions 0..S-1, else its tokens end at ``seqlens_k``.
New keys are rotated (by ``position_ids`` where they are given), then written at their positions
into a cache whose capacity may exceed the valid length; query head h uses key head h // G; a
window of W counts the token itself; with causal=0 every valid key is seen. Of a chunk padded to
the right ``query_seqlens`` (B) tokens count. Outputs of right-padded rows and unwritten cache rows
are unspecified. output_qk is the scores with cap and bias (1) or the weights (2), 0 where a key is
not seen. Q/K norm weights and quantized caches are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import attention, cache, positions, softmax, window_cache
from rewriter.rules.parts.grouped_query_inputs import (
    read_bias,
    read_heads,
    read_sink,
    refuse_unhandled,
)
from rewriter.rules.parts.grouped_query_positions import read_positions, rotated
from rewriter.rules.parts.grouped_query_sizes import Sizes, read_sizes
from rewriter.rules.parts.shorthand import sliced
from rewriter.site import Site
from rewriter.tape import Tape

_EMITS = (
    "Add", "And", "Cast", "Concat", "Equal", "Expand", "Gather", "LessOrEqual", "MatMul", "Max",
    "Mul", "Reshape", "ScatterElements", "Slice", "Softmax", "Split", "Sub", "Tanh", "Transpose",
    "Unsqueeze", "Where",
)  # fmt: skip


@lowers("com.microsoft::GroupQueryAttention", emits=_EMITS, opset=13)
def attention_primitives(op: Tape, site: Site) -> Sequence[ir.Value]:
    """Rotate, write the cache, then grouped attention over it."""
    refuse_unhandled(site)
    sizes = read_sizes(site)
    query, key, value = read_heads(op, site, sizes)
    where = read_positions(op, site, sizes)
    query, key = rotated(op, site, sizes, where, query, key)

    def present(past: ir.Value | None, new: ir.Value) -> ir.Value:
        if sizes.first_prompt:
            return cache.write_first(op, past, new, sizes.present)
        return cache.write(op, past, new, where, sizes.present)

    keys = present(site.optional("past_key"), key)
    values = present(site.optional("past_value"), value)
    y, shown = _mixed(op, site, sizes, where, (query, keys, values))
    return (y, keys, values) if shown is None else (y, keys, values, shown)


@lowers(
    "com.microsoft::GroupQueryAttention",
    emits=(*_EMITS, "Div", "GatherElements", "Min"),
    form="sliding_window_cache=1",
    order=-1,
    opset=13,
)
def attention_in_a_window(op: Tape, site: Site) -> Sequence[ir.Value]:
    """The same over a buffer that keeps the newest rows only."""
    refuse_unhandled(site)
    sizes = read_sizes(site)
    site.integer("sliding_window_cache")
    for name, usual in (("causal", 1), ("qk_output", 0)):
        given = site.integer(name)
        site.require(given == usual, f"{name}={given} with sliding_window_cache=1 is not legal")
    site.require(not sizes.runtime, "total_sequence_length is not a constant")
    site.require(not sizes.ragged, "query_seqlens with sliding_window_cache=1 is not handled")
    capacity, window = sizes.capacity, sizes.window
    site.require(window > 0, "sliding_window_cache=1 without local_window_size")
    site.require(
        capacity >= window, f"a cache of {capacity} rows is shorter than the window, {window}"
    )
    bias = site.optional("attention_bias")
    site.require(bias is None, "attention_bias over a windowed cache is not handled")
    query, key, value = read_heads(op, site, sizes)
    query, key = rotated(op, site, sizes, read_positions(op, site, sizes), query, key)
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
    return _mixed(op, site, sizes, rows, (query, key, value))[0], *presents


def _mixed(
    op: Tape, site: Site, sizes: Sizes, rows: ir.Value, heads: tuple[ir.Value, ir.Value, ir.Value]
) -> tuple[ir.Value, ir.Value | None]:
    """The attention itself, for query tokens at ``rows`` of the keys; and output_qk."""
    query, keys, values = heads
    length, dtype = attention.sizes(keys)[2], query.dtype
    assert dtype is not None
    scale = site.number("scale", 0.0) or 1 / math.sqrt(sizes.size)
    cap = max(site.number("softcap", 0.0), 0.0)
    scores = attention.scores(op, query, keys, scale / (cap or 1))
    if cap:
        scores = op.Mul(op.Tanh(scores), op.const(cap, dtype, name="softcap"))
    bias = read_bias(op, site, sizes, length)
    if bias is not None:
        scores = op.Add(scores, bias)
    if not site.integer("causal"):
        site.require(sizes.window < 0, "causal=0 with local_window_size is not legal")
        site.require(not sizes.ragged, "causal=0 with query_seqlens is not legal")
        rows = positions.next_positions(op, site.input("seqlens_k"), 1)
    mask = positions.causal_mask(op, rows, length, sizes.window, sizes.groups, dtype)
    sink = read_sink(op, site, sizes, dtype)
    weights = softmax.softmax(op, op.Add(scores, mask), sink)
    mixed = attention.by_heads(op, op.MatMul(weights, values), sizes.heads)
    y = attention.from_heads(op, mixed)
    mode = site.integer("qk_output")
    site.require(mode in {0, 1, 2}, f"qk_output={mode} is not defined")
    if not mode or not site.wants("output_qk"):
        return y, None
    site.require(not sizes.runtime, "output_qk is as long as total_sequence_length at run time")
    return y, _shown(op, sizes, rows, scores if mode == 1 else weights)


def _shown(op: Tape, sizes: Sizes, rows: ir.Value, x: ir.Value) -> ir.Value:
    """Scores or weights as (B, Hq, S, total), 0 where a key is not seen."""
    assert x.dtype is not None
    length = attention.sizes(x)[3]
    left = sizes.window - 1 if sizes.window > 0 else -1
    seen = positions.visible(op, rows, length, left, 0)
    zero = op.const(np.float32(0), x.dtype, name="zero")
    x = op.Where(seen, attention.by_heads(op, x, sizes.heads), zero)
    if length == sizes.total:
        return x
    return sliced(op, x, 0, sizes.total, 3)
