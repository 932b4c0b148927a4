"""com.microsoft GroupQueryAttention to primitives.

Semantics as ONNX Runtime 1.32 computes them: ``seqlens_k`` (B) is the position of the last valid
token; with S = total the node is a first prompt at positions 0..S-1, else its tokens end at
``seqlens_k``. New keys are rotated, then written at their positions into a cache whose capacity
may exceed the valid length; query head h uses key head h // G; a window of W counts the token
itself. Outputs of right-padded rows and unwritten cache rows are unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import attention, cache, positions, rope
from rewriter.site import Site
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Static sizes of a node; letters as in :mod:`rewriter.rules.parts`."""

    tokens: int
    heads: int
    kv_heads: int
    size: int
    capacity: int
    total: int

    @property
    def first_prompt(self) -> bool:
        return self.tokens == self.total

    @property
    def present(self) -> int:
        return max(self.capacity, self.total)


def _sizes(site: Site) -> _Sizes:
    heads, kv_heads = site.integer("num_heads"), site.integer("kv_num_heads")
    site.require(heads % kv_heads == 0, f"{heads} heads do not divide by {kv_heads}")
    query = site.shape(site.input("query"), "query")
    site.require(len(query) == 3, f"query has rank {len(query)}, not 3")
    packed = site.optional("key") is None
    size = query[2] // (heads + 2 * kv_heads if packed else heads)
    past = site.optional("past_key")
    capacity = site.shape(past, "past_key")[2] if past is not None else 0
    total = site.constant(site.input("total_sequence_length"), "total_sequence_length")
    return _Sizes(query[1], heads, kv_heads, size, capacity, int(total.reshape(-1)[0]))


def _qkv(op: Tape, site: Site, sizes: _Sizes) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query (B, Hq, S, D), key and value (B, Hk, S, D), from one packed input or three."""
    query, key, value = site.input("query"), site.optional("key"), site.optional("value")
    if key is None or value is None:
        site.require(key is value, "key and value have to be given both, or neither")
        widths = [n * sizes.size for n in (sizes.heads, sizes.kv_heads, sizes.kv_heads)]
        split = op.const(np.array(widths, np.int64), name="widths")
        query, key, value = op.emit("Split", (query, split), {"axis": -1}, outputs=3)
    for part, name in ((key, "key"), (value, "value")):
        rank = len(site.shape(part, name))
        site.require(rank == 3, f"{name} has rank {rank}, not 3")
    return (
        attention.to_heads(op, query, sizes.heads),
        attention.to_heads(op, key, sizes.kv_heads),
        attention.to_heads(op, value, sizes.kv_heads),
    )


def _rotated(
    op: Tape, site: Site, where: ir.Value, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Query and key turned by their positions, if the node does that itself."""
    tables = [site.optional(name) for name in ("cos_cache", "sin_cache")]
    interleaved = bool(site.integer("rotary_interleaved", 0))
    if not site.integer("do_rotary", 0):
        return query, key
    cos, sin = (None if t is None else rope.table_rows(op, t, where) for t in tables)
    if cos is None or sin is None:
        site.refuse("do_rotary=1 without cos_cache and sin_cache")
    return (
        rope.rotate(op, query, cos, sin, interleaved=interleaved),
        rope.rotate(op, key, cos, sin, interleaved=interleaved),
    )


@lowers(
    "com.microsoft::GroupQueryAttention",
    emits=(
        "Add", "And", "Concat", "Expand", "Gather", "Less", "LessOrEqual", "MatMul", "Mul",
        "Reshape", "ScatterElements", "Slice", "Softmax", "Split", "Sub", "Transpose",
        "Unsqueeze", "Where",
    ),
    opset=13,
)  # fmt: skip
def attention_primitives(op: Tape, site: Site) -> Sequence[ir.Value]:
    """Rotate, write the cache, then grouped attention over it."""
    sizes = _sizes(site)
    window = site.integer("local_window_size")
    site.require(window != 0, "local_window_size=0 sees no key")
    site.require(not site.number("softcap", 0.0), "softcap is not handled")
    site.require(site.integer("smooth_softmax") != 1, "smooth_softmax=1 is not handled")
    scale = site.number("scale", 0.0) or 1 / math.sqrt(sizes.size)

    query, key, value = _qkv(op, site, sizes)
    last = site.input("seqlens_k")
    if sizes.first_prompt:
        where = positions.first_positions(op, sizes.tokens)
    else:
        where = positions.next_positions(op, last, sizes.tokens)
    query, key = _rotated(op, site, where, query, key)

    def present(past: ir.Value | None, new: ir.Value) -> ir.Value:
        if sizes.first_prompt:
            return cache.write_first(op, past, new, sizes.present)
        return cache.write(op, past, new, where, sizes.present)

    keys = present(site.optional("past_key"), key)
    values = present(site.optional("past_value"), value)
    assert query.dtype is not None
    groups = sizes.heads // sizes.kv_heads
    mask = positions.causal_mask(op, where, sizes.present, window, groups, query.dtype)
    mixed = attention.grouped(op, query, keys, values, mask, scale)
    return attention.from_heads(op, mixed), keys, values
