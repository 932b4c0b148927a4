"""Attention of a layer: projections, norms, rotation, one GroupQueryAttention over the cache."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from frontends.decoder.config import Decoder, Layer
from frontends.decoder.draft import BATCH, TOTAL, Scope
from frontends.decoder.linear import linear
from frontends.decoder.norms import head_norm, plain_norm
from frontends.decoder.rope import rotate


@dataclass(frozen=True, slots=True)
class Lengths:
    """What all layers know of the tokens.

    Attributes:
        positions: int64 (B, S).
        valid: int32 (B,), tokens of each sequence, minus one.
        total: int32 scalar, the longest.
    """

    positions: ir.Value
    valid: ir.Value
    total: ir.Value


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values of a layer: those before, and the new ones, rotated, (B, S, Hk·D)."""

    past: tuple[ir.Value, ir.Value]
    new: tuple[ir.Value, ir.Value]


@dataclass(frozen=True, slots=True)
class Attended:
    """What attention gives.

    Attributes:
        output: (B, S, hidden).
        cache: keys and values it used, for layers that share them.
        present: the cache afterwards, (B, Hk, T, D) each; ``None`` if it is another layer's.
    """

    output: ir.Value
    cache: Cache
    present: tuple[ir.Value, ir.Value] | None


def attention(
    scope: Scope,
    decoder: Decoder,
    layer: Layer,
    x: ir.Value,
    lengths: Lengths,
    cache: tuple[ir.Value, ir.Value] | Cache,
) -> Attended:
    """Causal self-attention of x (B, S, hidden).

    Args:
        scope: of the layer.
        decoder: the model.
        layer: this one.
        x: normalized input.
        lengths: of the tokens.
        cache: this layer's past, or the cache of the layer whose keys and values it shares.
    """
    if isinstance(cache, Cache):
        rows = layer.heads * layer.head_dim
        query = _query(scope, decoder, layer, linear(scope, x, "attn_q", rows), lengths)
    else:
        query, *new = _projections(scope, decoder, layer, x, lengths)
        cache = Cache(cache, (new[0], new[1]))
    sink = None
    if scope.has("attn_sinks.weight"):
        sink = scope.vector("attn_sinks.weight", layer.heads)
    inputs = [query, *cache.new, *cache.past, lengths.valid, lengths.total]
    inputs_and_sink = [*inputs, None, None, None, None, sink] if sink is not None else inputs
    attributes = {
        "num_heads": layer.heads,
        "kv_num_heads": layer.kv_heads,
        "scale": decoder.attention_scale or layer.head_dim**-0.5,
        "local_window_size": layer.window or -1,
        "softcap": decoder.attention_softcap,
    }
    # ORT 1.32 reads no past where a node has no present outputs, so all nodes have them.
    outputs = scope.op.emit("com.microsoft::GroupQueryAttention", inputs_and_sink, attributes, 3)
    for state in outputs[1:]:  # past + new, or the rows of the past where that is a buffer
        state.shape = ir.Shape((BATCH, layer.kv_heads, TOTAL, layer.head_dim))
    present = (outputs[1], outputs[2]) if layer.shares is None else None
    mixed = linear(scope, outputs[0], "attn_output", decoder.hidden)
    return Attended(mixed, cache, present)


def _projections(
    scope: Scope, decoder: Decoder, layer: Layer, x: ir.Value, lengths: Lengths
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query, key and value (B, S, heads·D), as they enter attention and cache."""
    op, style = scope.op, decoder.architecture
    wide, width = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    if scope.has("attn_qkv.weight"):
        sizes = op.const([wide, width, width], ir.DataType.INT64)
        packed = linear(scope, x, "attn_qkv", wide + 2 * width)
        query, key, value = op.emit("Split", [packed, sizes], {"axis": -1}, 3)
    else:
        query, key = linear(scope, x, "attn_q", wide), linear(scope, x, "attn_k", width)
        shared = style.normed_values and not scope.has("attn_v.weight")
        value = key if shared else linear(scope, x, "attn_v", width)
    if style.normed_values:
        heads = op.const([0, 0, layer.kv_heads, layer.head_dim], ir.DataType.INT64)
        normed = plain_norm(scope, decoder, op.Reshape(value, heads), layer.head_dim)
        value = op.Reshape(normed, op.const([0, 0, width], ir.DataType.INT64))
    key = _placed(scope, decoder, layer, key, "attn_k_norm", layer.kv_heads, lengths)
    return _query(scope, decoder, layer, query, lengths), key, value


def _query(
    scope: Scope, decoder: Decoder, layer: Layer, query: ir.Value, lengths: Lengths
) -> ir.Value:
    return _placed(scope, decoder, layer, query, "attn_q_norm", layer.heads, lengths)


def _placed(
    scope: Scope,
    decoder: Decoder,
    layer: Layer,
    x: ir.Value,
    name: str,
    heads: int,
    lengths: Lengths,
) -> ir.Value:
    """Queries or keys, normalized if there is a weight for it, and rotated."""
    if scope.has(f"{name}.weight"):
        x = head_norm(scope, decoder, x, name, heads, layer.head_dim)
    if layer.rope is None:
        return x
    rows = decoder.context
    return rotate(scope.op, x, lengths.positions, layer.rope, heads=heads, rows=rows)
