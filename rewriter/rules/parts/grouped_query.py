"""What a GroupQueryAttention is given, read and checked: sizes, heads, rotation, bias, sinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.facts import constant, dims_of
from rewriter.rules.parts import attention, masks, positions, rope, softmax
from rewriter.site import Site
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Sizes:
    """Static sizes of a node; letters as in :mod:`rewriter.rules.parts`.

    ``total`` is an upper bound where ``total_sequence_length`` is given at run time: the cache is
    a buffer then, and whether anything precedes the tokens is known with it.
    """

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    size: int
    capacity: int
    total: int
    window: int
    runtime: bool = False
    ragged: bool = False

    @property
    def groups(self) -> int:
        """G."""
        return self.heads // self.kv_heads

    @property
    def first_prompt(self) -> bool:
        """Nothing precedes the tokens."""
        return self.tokens == self.total and not self.runtime and not self.ragged

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
    window = site.integer("local_window_size")
    site.require(window != 0, "local_window_size=0 sees no key")
    total = _total(site, query[1], capacity)
    ragged = site.optional("query_seqlens") is not None
    site.require(
        not ragged or past is not None, "query_seqlens without past_key and past_value is not legal"
    )
    sizes = Sizes(
        query[0], query[1], heads, kv_heads, size, capacity, total or capacity, window,
        total is None, ragged,
    )  # fmt: skip
    several = sizes.batch > 1 and sizes.tokens > 1 and past is not None
    site.require(
        not several or ragged or sizes.first_prompt,
        f"{sizes.tokens} tokens of {sizes.batch} sequences behind a past need query_seqlens",
    )
    return sizes


def _total(site: Site, tokens: int, capacity: int) -> int | None:
    """``total_sequence_length`` if a constant or a shape says it; else it is up to the capacity."""
    given = site.input("total_sequence_length")
    stored = constant(given)
    if stored is not None:
        return int(stored.numpy().reshape(-1)[0])
    if site.optional("past_key") is None:
        return tokens
    bias = site.optional("attention_bias")
    if bias is not None:
        return site.shape(bias, "attention_bias")[-1]
    present = site.node.outputs[1] if len(site.node.outputs) > 1 else None
    rows = None if present is None else (dims_of(present) or (None,) * 3)[2]
    # Of a value inside the graph only inference tells the rows, and it says past + new always.
    declared = present is not None and present.is_graph_output() and _outermost(site.node)
    if declared and rows is not None and rows > capacity:
        return rows
    site.require(rows == capacity, "total_sequence_length is not a constant")
    return None


def _outermost(node: ir.Node) -> bool:
    """Whether a node is in no branch or body: those import no opsets of their own."""
    return isinstance(node.graph, ir.Graph) and bool(node.graph.opset_imports)


def refuse_unhandled(site: Site) -> None:
    """Refuse by name what ONNX Runtime's CPU kernel, the oracle, refuses; and quantized caches."""
    for name in ("q_norm_weight", "k_norm_weight"):
        given = site.optional(name)
        site.require(
            given is None,
            f"{name} is not handled: ONNX Runtime's CPU kernel has no norm of query and key, so no "
            "replacement could be compared with it; normalize them before the node",
        )
    site.ignore("q_norm_epsilon", "k_norm_epsilon", "qk_norm_epsilon")  # of those norms
    for name in ("k_quant_type", "v_quant_type"):
        kind = site.attribute(name)
        site.require(
            kind == "NONE", f"{name}={kind} is not handled: the cache has to be of the query's type"
        )


def read_positions(op: Tape, site: Site, sizes: Sizes) -> ir.Value:
    """Positions (B or 1, S) of the new tokens.

    A first prompt starts at 0, everything else ends at ``seqlens_k``; of a chunk that is padded
    to the right the first ``query_seqlens`` tokens do.
    """
    last, count = site.input("seqlens_k"), site.optional("query_seqlens")
    if sizes.first_prompt:
        return positions.first_positions(op, sizes.tokens)
    if count is not None:
        return _padded_positions(op, last, count, sizes.tokens)
    behind = positions.next_positions(op, last, sizes.tokens)
    if not sizes.runtime or sizes.tokens == 1:
        return behind
    total = site.input("total_sequence_length")

    def build() -> ir.Value:
        assert last.dtype is not None
        first = op.Equal(total, op.const(sizes.tokens, total.dtype, name="tokens"))
        steps = op.const(np.arange(sizes.tokens)[None], last.dtype, name="positions")
        return op.Where(first, steps, behind)

    return op.once(("positions of a prompt", last, total, sizes.tokens), build)


def _padded_positions(op: Tape, last: ir.Value, count: ir.Value, tokens: int) -> ir.Value:
    def build() -> ir.Value:
        column = op.const(np.array([-1, 1], np.int64), name="column")
        assert last.dtype is not None
        same = count if count.dtype == last.dtype else op.Cast(count, to=last.dtype)
        before = op.Sub(op.Reshape(last, column), op.Reshape(same, column))
        steps = op.const(np.arange(tokens)[None] + 1, last.dtype, name="steps")
        return op.Add(before, steps)

    return op.once(("positions of a chunk", last, count, tokens), build)


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
    op: Tape, site: Site, sizes: Sizes, where: ir.Value, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Query and key turned by their positions, or by ``position_ids``, if the node does that."""
    tables = [site.optional(name) for name in ("cos_cache", "sin_cache")]
    interleaved = bool(site.integer("rotary_interleaved", 0))
    given = site.optional("position_ids")
    if not site.integer("do_rotary", 0):
        return query, key
    at = where if given is None else _turned_at(op, site, sizes, given)
    cos, sin = (None if t is None else rope.table_rows(op, t, at) for t in tables)
    if cos is None or sin is None:
        site.refuse("do_rotary=1 without cos_cache and sin_cache")
    return (
        rope.rotate(op, query, cos, sin, interleaved=interleaved),
        rope.rotate(op, key, cos, sin, interleaved=interleaved),
    )


def _turned_at(op: Tape, site: Site, sizes: Sizes, given: ir.Value) -> ir.Value:
    """``position_ids`` as they are; of a first prompt only the very first one counts (schema)."""
    if not sizes.first_prompt and (not sizes.runtime or sizes.ragged):
        return given
    total = site.input("total_sequence_length")

    def build() -> ir.Value:
        assert given.dtype is not None
        flat = op.Reshape(given, op.const(np.array([-1], np.int64), name="flat"))
        bounds = (op.const(np.array([at], np.int64), name="bound") for at in (0, 1, 0))
        steps = op.const(np.arange(sizes.tokens)[None], given.dtype, name="positions")
        from_first = op.Add(op.Slice(flat, *bounds), steps)
        if sizes.first_prompt:
            return from_first
        first = op.Equal(total, op.const(sizes.tokens, total.dtype, name="tokens"))
        return op.Where(first, from_first, given)

    return op.once(("turned at", given, total, sizes.tokens), build)


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
