"""com.microsoft DecoderMaskedMultiHeadAttention to primitives.

One token a sequence over a buffer that it is written into at ``past_sequence_length``; or, with
``key`` and ``value`` split into heads (rank 4), over another sequence and no cache. Otherwise as
:mod:`rewriter.rules.parts.multi_head`. Refused is what ONNX Runtime's CPU kernel, the oracle, does
not take: a past that is not a shared buffer, packed inputs, several tokens, a bias of scores over
another sequence; and beams, which reorder the cache at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import attention, multi_head, multi_head_cache
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("com.microsoft::DecoderMaskedMultiHeadAttention", emits=multi_head.EMITS, opset=16)
def attention_of_one_token(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """Softmax(scale·q·kᵀ + attention_bias + hidden)·v for the newest token."""
    multi_head_cache.one_beam(site)
    site.ignore("beam_width")
    query = site.input("query")
    key, value = site.optional("key"), site.optional("value")
    if key is None or value is None:
        site.refuse("query, key and value packed into one another are not handled")
    heads, shape = site.integer("num_heads"), site.shape(query, "query")
    tokens = shape[1]
    site.require(tokens == 1, f"{tokens} tokens: DecoderMaskedMultiHeadAttention is of one")
    across = len(site.shape(key, "key")) == 4
    bias = site.optional("bias")
    if bias is not None:
        parts = op.emit("Split", (bias, _thirds(op, shape[2])), {"axis": 0}, outputs=3)
        query = op.Add(query, parts[0])
        if not across:
            key, value = op.Add(key, parts[1]), op.Add(value, parts[2])
    query = attention.to_heads(op, query, heads)
    if across:
        rows = _other_sequence(site, key, value)
    else:
        new = attention.to_heads(op, key, heads), attention.to_heads(op, value, heads)
        rows = _in_buffer(op, site, new)
    mask = site.optional("mask_index")
    flags = mask is None or len(site.shape(mask, "mask_index")) == 2
    site.require(flags, "mask_index that is not (B, T) is not handled")
    seen = multi_head.read_seen(op, site, "mask_index", query, rows)
    added = multi_head.hidden(op, site, query, rows, seen, causal=False)
    y, scores = multi_head.mixed(op, site, query, rows, added)
    shown = bool(site.integer("output_qk", 0)) and not across
    if site.wants("qk"):
        site.require(shown, "qk needs output_qk=1, and a cache")
        multi_head_cache.of_known_length(site, rows)
    return (y,) if across else (y, *rows.caches, scores)


def _thirds(op: Tape, width: int) -> ir.Value:
    return op.const(np.array([width] * 3, np.int64), name="widths")


def _other_sequence(site: Site, key: ir.Value, value: ir.Value) -> multi_head_cache.Rows:
    past, bias = site.optional("past_key"), site.optional("attention_bias")
    site.require(past is None, "past_key with key and value split into heads is not handled")
    site.require(bias is None, "attention_bias over another sequence is not handled")
    site.ignore("past_value", "past_sequence_length", "past_present_share_buffer")
    return multi_head_cache.new_rows(key, value)


def _in_buffer(op: Tape, site: Site, new: tuple[ir.Value, ir.Value]) -> multi_head_cache.Rows:
    past = multi_head_cache.read_past(site, new)
    shared = bool(site.integer("past_present_share_buffer", 0))
    start = site.optional("past_sequence_length")
    if past is None or start is None or not shared:
        site.refuse(
            "the past has to be a shared buffer: past_key, past_value, past_sequence_length and "
            "past_present_share_buffer=1"
        )
    total = multi_head_cache.known_total(site, "mask_index")
    return multi_head_cache.in_buffer(op, site, past, new, start, total)
