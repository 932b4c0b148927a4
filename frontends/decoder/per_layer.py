"""Inputs that each layer gets of its own, of the token and of its embedding (Gemma 4)."""

from __future__ import annotations

import math

import onnx_ir as ir

from frontends.decoder.config import Decoder
from frontends.decoder.draft import Scope
from frontends.decoder.feed_forward import activated
from frontends.decoder.linear import embedding, linear
from frontends.decoder.norms import norm


def per_layer_inputs(scope: Scope, decoder: Decoder, ids: ir.Value, x: ir.Value) -> list[ir.Value]:
    """One value (B, S, P) for each layer: (norm(proj(x)/√H) + √P·row of the token)/√2.

    Args:
        scope: of the model.
        decoder: the model, whose ``per_layer`` is P.
        ids: (B, S).
        x: their embeddings, scaled, (B, S, H).
    """
    op, width, count = scope.op, decoder.per_layer, len(decoder.layers)
    split = op.const([0, 0, count, width], ir.DataType.INT64)
    table = embedding(scope, ids, "per_layer_token_embd", (None, count * width))
    rows = op.Reshape(table, split)
    rows = op.Mul(rows, op.const(math.sqrt(width), ir.DataType.FLOAT))
    projected = linear(scope, x, "per_layer_model_proj", count * width)
    projected = op.Mul(projected, op.const(1 / math.sqrt(decoder.hidden), ir.DataType.FLOAT))
    normed = norm(scope, decoder, op.Reshape(projected, split), "per_layer_proj_norm")
    both = op.Mul(op.Add(normed, rows), op.const(math.sqrt(0.5), ir.DataType.FLOAT))
    flat = op.Reshape(both, op.const([0, 0, count * width], ir.DataType.INT64))
    sizes = op.const([width] * count, ir.DataType.INT64)
    return list(op.emit("Split", [flat, sizes], {"axis": -1}, count))


def with_per_layer_input(scope: Scope, decoder: Decoder, x: ir.Value, own: ir.Value) -> ir.Value:
    """Add what a layer makes of its own input: x + norm(proj(act(gate x) · own))."""
    op = scope.op
    gate = linear(scope, x, "inp_gate", decoder.per_layer)
    gated = op.Mul(activated(op, gate, decoder.architecture.activation), own)
    projected = linear(scope, gated, "proj", decoder.hidden)
    return op.Add(x, norm(scope, decoder, projected, "post_norm"))
