"""com.microsoft Attention, whose weights are packed, to primitives.

q, k and v are the parts of input·weights + bias; ``past`` and ``present`` (2, B, H, ·, D) hold
keys, then values; the rest is :mod:`rewriter.rules.parts.multi_head`. A mask of one flag a sequence
stands for none. Refused is what ONNX Runtime's CPU kernel, the oracle, does not compute: rotation,
a past that is a shared buffer, masks (B, 1, M, M), a bias together with a past, and presents whose
keys and values are not equally wide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rule import lowers
from rewriter.rules.parts import attention, multi_head, multi_head_cache
from rewriter.rules.parts.multi_head_cache import Rows
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("com.microsoft::Attention", emits=multi_head.EMITS, opset=16)
def attention_of_packed_weights(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """MatMul(input, weights) + bias, split; softmax(scale·q·kᵀ + hidden + attention_bias)·v."""
    rotary, shared = site.integer("do_rotary", 0), site.integer("past_present_share_buffer", 0)
    site.require(not rotary, "do_rotary=1 is not handled: ONNX Runtime's CPU kernel refuses it")
    site.ignore("rotary_embedding_dim", "past_sequence_length")  # of what is refused
    past = site.optional("past")
    site.require(past is None or not shared, "past_present_share_buffer=1 with a past")
    both = past is not None and site.optional("attention_bias") is not None
    site.require(not both, "attention_bias together with a past is not legal")
    query, key, value = _heads(op, site)
    rows = _rows(op, site, past, key, value)
    seen = None if _says_nothing(site, static_dims(query)[0]) else multi_head.read_seen(
        op, site, "mask_index", query, rows, starts=True
    )  # fmt: skip
    causal = bool(site.integer("unidirectional"))
    added = multi_head.hidden(op, site, query, rows, seen, causal=causal)
    y, _ = multi_head.mixed(op, site, query, rows, added)
    return y, _present(op, rows) if site.wants("present") else None


def _heads(op: Tape, site: Site) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query, key and value of the same tokens, each (B, H, S, ·)."""
    weights, heads = site.input("weights"), site.integer("num_heads")
    width = site.shape(weights, "weights")[1]
    sizes = site.attribute("qkv_hidden_sizes") or [width // 3] * 3
    fits = len(sizes) == 3 and sum(sizes) == width and sizes[0] == sizes[1]
    fits = fits and all(size % heads == 0 for size in sizes)
    site.require(fits, f"qkv_hidden_sizes={list(sizes)} do not fit weights of {width} columns")
    packed = op.MatMul(site.input("input"), weights)
    bias = site.optional("bias")
    if bias is not None:
        packed = op.Add(packed, bias)
    widths = op.const(np.array(sizes, np.int64), name="widths")
    parts = op.emit("Split", (packed, widths), {"axis": -1}, outputs=3)
    query, key, value = (attention.to_heads(op, part, heads) for part in parts)
    return query, key, value


def _rows(op: Tape, site: Site, past: ir.Value | None, key: ir.Value, value: ir.Value) -> Rows:
    equal = static_dims(key) == static_dims(value)
    cached = past is not None or site.wants("present")
    site.require(equal or not cached, "a past or present of keys and values of unequal width")
    if past is None:
        return multi_head_cache.new_rows(key, value)
    batch, heads, _, size = static_dims(key)
    dims = site.shape(past, "past")
    fits = len(dims) == 5 and (*dims[:3], dims[4]) == (2, batch, heads, size)
    site.require(fits, f"past {dims} does not fit heads {static_dims(key)}")
    if dims[3] == 0:
        return multi_head_cache.new_rows(key, value)
    both = reshaped(op, past, (2 * batch, heads, dims[3], size), "past_shape")
    halves = op.const(np.array([batch, batch], np.int64), name="halves")
    old = op.emit("Split", (both, halves), {"axis": 0}, outputs=2)
    return multi_head_cache.after_past(op, (old[0], old[1]), (key, value))


def _says_nothing(site: Site, batch: int) -> bool:
    """Whether the mask is one flag a sequence, which ONNX Runtime takes for no mask."""
    mask = site.optional("mask_index")
    return mask is not None and site.shape(mask, "mask_index") in {(1, 1), (batch, 1)}


def _present(op: Tape, rows: Rows) -> ir.Value:
    both = op.Concat(*rows.caches, axis=0)
    return reshaped(op, both, (2, *static_dims(rows.keys)), "present_shape")
