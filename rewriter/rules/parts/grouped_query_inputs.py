"""What a GroupQueryAttention is given, read and checked: heads, bias, sinks; or refused."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rules.parts import attention, masks, softmax
from rewriter.rules.parts.grouped_query_sizes import Sizes
from rewriter.site import Site
from rewriter.tape import Tape


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
