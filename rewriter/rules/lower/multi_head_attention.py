"""com.microsoft MultiHeadAttention to primitives.

q, k and v are the inputs plus their part of ``bias``, as :mod:`rewriter.rules.parts.multi_head`
computes with them. ``key`` and ``value`` of rank 4 are heads already, of another sequence: they
get no bias. Refused is what ONNX Runtime's CPU kernel, the oracle, does not compute: inputs packed
into one another; and ``unidirectional`` over more or fewer keys than tokens, where it lets the
last token see everything. The fourth output is the scores before the softmax.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rule import lowers
from rewriter.rules.parts import attention, multi_head, multi_head_cache
from rewriter.site import Site
from rewriter.tape import Tape

_PACKED = (
    "query, key and value packed into one another are not handled: ONNX Runtime's CPU kernel, "
    "which a replacement is compared with, does not compute them"
)


@lowers("com.microsoft::MultiHeadAttention", emits=multi_head.EMITS, opset=16)
def attention_of_heads(op: Tape, site: Site) -> Sequence[ir.Value]:
    """Softmax(scale·q·kᵀ + attention_bias + hidden)·v."""
    multi_head_cache.one_beam(site)
    query, key, value = _heads(op, site, site.integer("num_heads"))
    rows = _rows(op, site, key, value)
    causal = bool(site.integer("unidirectional"))
    tokens, new = static_dims(query)[2], static_dims(key)[2]
    site.require(
        not causal or tokens == new,
        f"unidirectional=1 over {new} new keys of {tokens} tokens: ONNX Runtime masks no row right",
    )
    seen = multi_head.read_seen(op, site, "key_padding_mask", query, rows)
    added = multi_head.hidden(op, site, query, rows, seen, causal=causal)
    y, scores = multi_head.mixed(op, site, query, rows, added)
    if site.wants("qk"):
        multi_head_cache.of_known_length(site, rows)
        if causal:
            op.note("qk has about -3e4 for later keys where ONNX Runtime has the lowest float")
    return y, *rows.caches, scores


def _heads(op: Tape, site: Site, heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query (B, H, S, D), key (B, H, L, D) and value (B, H, L, Dv); the last two may be so."""
    query, key, value = (site.optional(name) for name in ("query", "key", "value"))
    if query is None or key is None or value is None:
        site.refuse(_PACKED)
    found = [query, key, value]
    shapes = [site.shape(x, name) for x, name in zip(found, ("query", "key", "value"), strict=True)]
    ranks = tuple(map(len, shapes))
    site.require(ranks in {(3, 3, 3), (3, 4, 4)}, _PACKED)
    bias = site.optional("bias")
    if bias is not None:
        sizes = [shape[2] if len(shape) == 3 else shape[1] * shape[3] for shape in shapes]
        widths = op.const(np.array(sizes, np.int64), name="widths")
        parts = op.emit("Split", (bias, widths), {"axis": 0}, outputs=3)
        found = [
            op.Add(x, part) if len(shape) == 3 else x
            for x, part, shape in zip(found, parts, shapes, strict=True)
        ]
    query, key, value = (
        x if len(static_dims(x)) == 4 else attention.to_heads(op, x, heads) for x in found
    )
    return query, key, value


def _rows(op: Tape, site: Site, key: ir.Value, value: ir.Value) -> multi_head_cache.Rows:
    """All keys and values; ``past_sequence_length`` says that the past is a buffer."""
    past = multi_head_cache.read_past(site, (key, value))
    start = site.optional("past_sequence_length")
    if past is None:
        return multi_head_cache.new_rows(key, value)
    if start is None:
        return multi_head_cache.after_past(op, past, (key, value))
    split = len(site.shape(site.input("key"), "key")) == 4
    site.require(not split, "past_sequence_length with key and value split into heads")
    total = multi_head_cache.known_total(site, "key_padding_mask")
    return multi_head_cache.in_buffer(op, site, past, (key, value), start, total)
