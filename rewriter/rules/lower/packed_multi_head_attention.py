"""com.microsoft PackedMultiHeadAttention and PackedAttention to primitives.

T tokens of B sequences one behind the other, without padding: those of sequence b are rows
cumulative_sequence_length[b] to [b + 1] - 1, and a token sees those of its own sequence alone.
token_offset (B, S) says which padded position a row comes from; only the bias of padded positions,
(B or 1, H or 1, S, S), needs it, and then it has to be a constant (ORT contrib schemas). ONNX
Runtime's CPU has a kernel for neither op.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rule import lowers
from rewriter.rules.parts import attention, positions
from rewriter.rules.parts.shorthand import axes, reshaped
from rewriter.site import Site
from rewriter.tape import Tape

_EMITS = (
    "Add", "Cast", "Equal", "Gather", "LessOrEqual", "MatMul", "Mul", "ReduceSum", "Reshape",
    "Softmax", "Split", "Transpose", "Where",
)  # fmt: skip


@lowers("com.microsoft::PackedMultiHeadAttention", emits=_EMITS, opset=13)
def attention_of_packed_tokens(op: Tape, site: Site) -> ir.Value:
    """Softmax(scale·q·kᵀ + attention_bias + own sequence)·v over all T tokens at once."""
    filtered = site.number("mask_filter_value", -10000.0)
    site.require(filtered <= -1000, f"mask_filter_value={filtered:g} lets other sequences be seen")
    query, key, value = (site.optional(name) for name in ("query", "key", "value"))
    if query is None or key is None or value is None:
        site.refuse("query, key and value packed into one another are not handled")
    found = [query, key, value]
    shapes = [site.shape(x, name) for x, name in zip(found, ("query", "key", "value"), strict=True)]
    site.require(all(len(shape) == 2 for shape in shapes), "query, key and value have to be (T, ·)")
    bias = site.optional("bias")
    if bias is not None:
        widths = op.const(np.array([shape[1] for shape in shapes], np.int64), name="widths")
        parts = op.emit("Split", (bias, widths), {"axis": 0}, outputs=3)
        found = [op.Add(x, part) for x, part in zip(found, parts, strict=True)]
    return _mixed(op, site, found)


@lowers("com.microsoft::PackedAttention", emits=_EMITS, opset=13)
def attention_of_packed_weights_and_tokens(op: Tape, site: Site) -> ir.Value:
    """The same of the parts of input·weights + bias."""
    weights, heads = site.input("weights"), site.integer("num_heads")
    width = site.shape(weights, "weights")[1]
    sizes = site.attribute("qkv_hidden_sizes") or [width // 3] * 3
    fits = len(sizes) == 3 and sum(sizes) == width and all(size % heads == 0 for size in sizes)
    site.require(fits, f"qkv_hidden_sizes={list(sizes)} do not fit weights of {width} columns")
    packed = op.Add(op.MatMul(site.input("input"), weights), site.input("bias"))
    widths = op.const(np.array(sizes, np.int64), name="widths")
    return _mixed(op, site, list(op.emit("Split", (packed, widths), {"axis": -1}, outputs=3)))


def _mixed(op: Tape, site: Site, found: list[ir.Value]) -> ir.Value:
    heads = site.integer("num_heads")
    tokens = static_dims(found[0])[0]
    for i, part in enumerate(found):
        batch = reshaped(op, part, (1, *static_dims(part)), "batch")
        found[i] = attention.to_heads(op, batch, heads)
    query, key, value = found
    assert query.dtype is not None
    scale = site.number("scale", 0.0) or 1 / math.sqrt(static_dims(query)[3])
    scores = attention.scores(op, query, key, scale)
    bias = _bias(op, site, heads, tokens)
    if bias is not None:
        scores = op.Add(scores, bias)
    own = positions.hidden(op, _own_sequence(op, site, tokens), query.dtype)
    y = attention.from_heads(op, op.MatMul(op.Softmax(op.Add(scores, own), axis=-1), value))
    return reshaped(op, y, static_dims(y)[1:], "flat")


def _own_sequence(op: Tape, site: Site, tokens: int) -> ir.Value:
    """Whether two tokens are of one sequence, (1, 1, T, T)."""
    ends = site.input("cumulative_sequence_length")
    count = site.shape(ends, "cumulative_sequence_length")[0]

    def build() -> ir.Value:
        column = reshaped(op, ends, (count, 1), "column")
        row = op.const(np.arange(tokens)[None], ends.dtype, name="tokens")
        before = op.Cast(op.LessOrEqual(column, row), to=ir.DataType.INT32)
        sequence = op.ReduceSum(before, axes(op, 0), keepdims=0)
        shapes = ((1, 1, tokens, 1), (1, 1, 1, tokens))
        return op.Equal(*(reshaped(op, sequence, shape, "side") for shape in shapes))

    return op.once(("own sequence", ends, tokens), build)


def _bias(op: Tape, site: Site, heads: int, tokens: int) -> ir.Value | None:
    """The bias of padded positions as one of packed tokens, (1, H or 1, T, T)."""
    bias = site.optional("attention_bias")
    offsets = site.input("token_offset")
    if bias is None:
        return None
    batch, length = site.shape(offsets, "token_offset")
    dims = site.shape(bias, "attention_bias")
    fits = len(dims) == 4 and dims[0] in {1, batch} and dims[1] in {1, heads}
    site.require(
        fits and dims[2:] == (length, length),
        f"attention_bias {dims} does not fit {batch} sequences of {length}",
    )
    at = site.constant(offsets, "token_offset, which says where the bias applies,")
    rows = at.reshape(-1)[:tokens].astype(np.int64)
    if dims[0] == 1:
        rows %= length
    else:
        bias = op.Transpose(bias, perm=[1, 0, 2, 3])
    flat = reshaped(op, bias, (1, dims[1], dims[0] * length, length), "bias_shape")
    bias = op.Gather(flat, op.const(rows, name="rows"), axis=2)
    columns = at.reshape(-1)[:tokens].astype(np.int64) % length
    return op.Gather(bias, op.const(columns, name="columns"), axis=3)
