"""What a GroupQueryAttention is given, read and checked: sizes, heads, rotation, bias, sinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.rules.parts import attention, masks, rope, softmax
from rewriter.site import Site
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Sizes:
    """Static sizes of a node; letters as in :mod:`rewriter.rules.parts`."""

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    size: int
    capacity: int
    total: int
    window: int

    @property
    def groups(self) -> int:
        """G."""
        return self.heads // self.kv_heads

    @property
    def first_prompt(self) -> bool:
        """Nothing precedes the tokens."""
        return self.tokens == self.total

    @property
    def present(self) -> int:
        """Rows of a cache that grows or has room."""
        return max(self.capacity, self.total)


def read_sizes(site: Site) -> Sizes:
    """Sizes, from the node's attributes and the shapes of its inputs."""
    heads, kv_heads = site.integer("num_heads"), site.integer("kv_num_heads")
    site.require(heads % kv_heads == 0, f"{heads} heads do not divide by {kv_heads}")
    query = site.shape(site.input("query"), "query")
    site.require(len(query) == 3, f"query has rank {len(query)}, not 3")
    packed = site.optional("key") is None
    size = query[2] // (heads + 2 * kv_heads if packed else heads)
    past = site.optional("past_key")
    capacity = site.shape(past, "past_key")[2] if past is not None else 0
    total = site.constant(site.input("total_sequence_length"), "total_sequence_length")
    window = site.integer("local_window_size")
    site.require(window != 0, "local_window_size=0 sees no key")
    most = int(total.reshape(-1)[0])
    return Sizes(query[0], query[1], heads, kv_heads, size, capacity, most, window)


def read_heads(op: Tape, site: Site, sizes: Sizes) -> tuple[ir.Value, ir.Value, ir.Value]:
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


def rotated(
    op: Tape, site: Site, where: ir.Value, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Query and key turned by their positions, or by ``position_ids``, if the node does that."""
    tables = [site.optional(name) for name in ("cos_cache", "sin_cache")]
    interleaved = bool(site.integer("rotary_interleaved", 0))
    given = site.optional("position_ids")
    if not site.integer("do_rotary", 0):
        return query, key
    at = where if given is None else given
    cos, sin = (None if t is None else rope.table_rows(op, t, at) for t in tables)
    if cos is None or sin is None:
        site.refuse("do_rotary=1 without cos_cache and sin_cache")
    return (
        rope.rotate(op, query, cos, sin, interleaved=interleaved),
        rope.rotate(op, key, cos, sin, interleaved=interleaved),
    )


def read_bias(op: Tape, site: Site, sizes: Sizes, keys: int) -> ir.Value | None:
    """``attention_bias`` (B or 1, Hq or 1, S, total) for scores (B, Hk, G·S, ``keys``)."""
    bias = site.optional("attention_bias")
    if bias is None:
        return None
    dims = site.shape(bias, "attention_bias")
    fits = dims[2:] == (sizes.tokens, sizes.total) and dims[1] in {1, sizes.heads}
    site.require(
        len(dims) == 4 and fits and dims[0] in {1, sizes.batch},
        f"attention_bias {dims} does not fit {sizes.tokens} tokens and {sizes.total} keys",
    )
    assert bias.dtype is not None
    added = masks.additive(op, bias, keys, bias.dtype)
    return attention.in_rows(op, added, sizes.groups, sizes.tokens)


def read_sink(op: Tape, site: Site, sizes: Sizes, dtype: ir.DataType) -> ir.Value | None:
    """``head_sink`` or the zero of ``smooth_softmax`` for scores (B, Hk, G·S, T)."""
    sink, smooth = site.optional("head_sink"), site.integer("smooth_softmax")
    if sink is None and smooth != 1:
        return None
    if sink is not None:
        dims = site.shape(sink, "head_sink")
        site.require(dims == (sizes.heads,), f"head_sink {dims} is not one number a head")
    rows = (sizes.batch, sizes.heads, sizes.groups, sizes.tokens)
    return softmax.sink_rows(op, sink, *rows, dtype)
