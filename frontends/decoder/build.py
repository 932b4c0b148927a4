"""A decoder and its weights as one portable graph, with a cache that grows.

Inputs and outputs are named as onnxruntime-genai names them. The same graph serves a cache of
fixed size: with past and total both the size of the buffer, GroupQueryAttention writes into it.
"""

from __future__ import annotations

import onnx_ir as ir

from frontends.decoder.attention import Cache, Lengths, attention
from frontends.decoder.config import Decoder, Layer
from frontends.decoder.draft import BATCH, NEW, PAST, TOTAL, Draft, Scope
from frontends.decoder.experts import expert_layer, shared_expert
from frontends.decoder.feed_forward import feed_forward
from frontends.decoder.linear import embedding, linear, tied_head
from frontends.decoder.norms import norm
from frontends.decoder.per_layer import per_layer_inputs, with_per_layer_input
from frontends.decoder.weights import Weights
from rewriter.tape import Tape


def build(decoder: Decoder, weights: Weights, source: str) -> ir.Model:
    """The portable graph (opset 24 and com.microsoft); weights stay where they are.

    Args:
        decoder: what to build.
        weights: of the checkpoint.
        source: what messages call it.

    Raises:
        BadInput: a weight that the architecture needs is not there, or has another shape.
    """
    draft = Draft(decoder.name)
    ids = draft.input("input_ids", ir.DataType.INT64, (BATCH, NEW))
    mask = draft.input("attention_mask", ir.DataType.INT64, (BATCH, TOTAL))
    positions = draft.input("position_ids", ir.DataType.INT64, (BATCH, NEW))
    past = {
        i: _past(draft, i, layer) for i, layer in enumerate(decoder.layers) if layer.shares is None
    }
    with draft.part("model") as op:
        lengths = _lengths(op, mask, positions)
        scope = Scope(op, weights, source)
        embedded = embedding(scope, ids, "token_embd", (decoder.vocabulary, decoder.hidden))
        x = _scaled(op, embedded, decoder.embedding_scale)
        own = per_layer_inputs(scope, decoder, ids, x) if decoder.per_layer else []
    caches: dict[int, Cache] = {}
    presents: dict[int, tuple[ir.Value, ir.Value]] = {}
    for i, layer in enumerate(decoder.layers):
        with draft.part(f"layers.{i}") as op:
            scope = Scope(op, weights, source, f"blk.{i}.")
            _require(scope, decoder, layer)
            cache = past[i] if layer.shares is None else caches[layer.shares]
            normed = norm(scope, decoder, x, "attn_norm") if scope.has("attn_norm.weight") else x
            attended = attention(scope, decoder, layer, normed, lengths, cache)
            caches[i] = attended.cache
            if attended.present is not None:
                presents[i] = attended.present
            x = _fed(scope, decoder, x, normed, attended.output)
            if own:
                x = with_per_layer_input(scope, decoder, x, own[i])
            if scope.has("layer_output_scale.weight"):
                x = op.Mul(x, scope.vector("layer_output_scale.weight", 1))
    with draft.part("head") as op:
        logits = _logits(Scope(op, weights, source), decoder, x)
    draft.output("logits", logits)
    for i, state in presents.items():
        for what, value in zip(("key", "value"), state, strict=True):
            draft.output(f"present.{i}.{what}", value)
    return draft.model()


def _require(scope: Scope, decoder: Decoder, layer: Layer) -> None:
    """Stop where a layer lacks what others would do without.

    Raises:
        BadInput: it does.
    """
    for name in decoder.architecture.needs:
        if layer.shares is None or name != "attn_k_norm":
            scope.weight(f"{name}.weight")


def _past(draft: Draft, index: int, layer: Layer) -> tuple[ir.Value, ir.Value]:
    shape = (BATCH, layer.kv_heads, PAST, layer.head_dim)
    key, value = (
        draft.input(f"past_key_values.{index}.{what}", ir.DataType.FLOAT, shape)
        for what in ("key", "value")
    )
    return key, value


def _lengths(op: Tape, mask: ir.Value, positions: ir.Value) -> Lengths:
    """Valid tokens from the mask's sum, the longest from its width."""
    count = op.ReduceSum(mask, op.const([1], ir.DataType.INT64), keepdims=0)
    valid = op.Cast(op.Sub(count, op.const(1, ir.DataType.INT64)), to=ir.DataType.INT32)
    width = op.Gather(op.Shape(mask), op.const(1, ir.DataType.INT64))
    return Lengths(positions, valid, op.Cast(width, to=ir.DataType.INT32))


def _scaled(op: Tape, x: ir.Value, factor: float) -> ir.Value:
    """The product of x and a number, which may be 1."""
    return x if factor == 1 else op.Mul(x, op.const(factor, ir.DataType.FLOAT))


def _fed(
    scope: Scope, decoder: Decoder, x: ir.Value, normed: ir.Value, attended: ir.Value
) -> ir.Value:
    """The residual stream after attention and the feed-forward part.

    Without a norm of its own, the latter runs beside attention on the same input, unless what it
    gives is normalized.
    """
    op, before = scope.op, decoder.architecture.ffn_norm
    after = scope.has("post_ffw_norm.weight")
    if scope.has("post_attention_norm.weight") and before != "post_attention_norm":
        attended = norm(scope, decoder, attended, "post_attention_norm")
    x = op.Add(x, _scaled(op, attended, decoder.residual_scale))
    if scope.has(f"{before}.weight"):
        normed = norm(scope, decoder, x, before)
    elif after:
        normed = x
    fed = _feed_forward(scope, decoder, normed, x)
    if after:
        fed = norm(scope, decoder, fed, "post_ffw_norm")
    return op.Add(x, _scaled(op, fed, decoder.residual_scale))


def _feed_forward(scope: Scope, decoder: Decoder, normed: ir.Value, x: ir.Value) -> ir.Value:
    """The dense part, the experts, or both: a shared expert, or Gemma 4's two branches."""
    experts = decoder.experts
    if experts is None or not scope.has("ffn_gate_inp.weight"):
        return feed_forward(scope, decoder, normed)
    if scope.has("pre_ffw_norm_2.weight"):
        dense = feed_forward(scope, decoder, normed)
        sparse = norm(scope, decoder, x, "pre_ffw_norm_2")
        sparse = expert_layer(scope, decoder, experts, sparse, routed=x)
        dense = norm(scope, decoder, dense, "post_ffw_norm_1")
        return scope.op.Add(dense, norm(scope, decoder, sparse, "post_ffw_norm_2"))
    fed = expert_layer(scope, decoder, experts, normed, routed=normed)
    if not scope.has("ffn_down_shexp.weight"):
        return fed
    shared = feed_forward(scope, decoder, normed, "_shexp")
    return scope.op.Add(fed, shared_expert(scope, normed, shared))


def _logits(scope: Scope, decoder: Decoder, x: ir.Value) -> ir.Value:
    op, normed = scope.op, norm(scope, decoder, x, "output_norm")
    if scope.has("output.weight"):
        logits = linear(scope, normed, "output", decoder.vocabulary)
    else:
        logits = tied_head(scope, normed, "token_embd")
    logits = _scaled(op, logits, decoder.logit_scale)
    if decoder.final_softcap:
        cap = op.const(decoder.final_softcap, ir.DataType.FLOAT)
        logits = op.Mul(op.Tanh(op.Div(logits, cap)), cap)
    return logits
