"""The feed-forward part of a layer."""

from __future__ import annotations

import onnx_ir as ir

from frontends.decoder.config import Activation, Decoder
from frontends.decoder.draft import Scope
from frontends.decoder.linear import linear
from rewriter.tape import Tape


def activated(op: Tape, x: ir.Value, kind: Activation) -> ir.Value:
    """An activation, elementwise."""
    if kind == "silu":
        return op.Mul(x, op.Sigmoid(x))
    return op.Gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def feed_forward(scope: Scope, decoder: Decoder, x: ir.Value, suffix: str = "") -> ir.Value:
    """down(act(gate x) · up x), or down(act(up x)) without a gate; x is (B, S, hidden).

    Args:
        scope: of the layer.
        decoder: the model.
        x: normalized input.
        suffix: of the weights' names, for a shared expert.
    """
    op, kind = scope.op, decoder.architecture.activation
    width = scope.sized(f"ffn_down{suffix}.weight", decoder.hidden, None).shape[1]
    gate = f"ffn_gate{suffix}"
    packed = (
        not scope.has(f"{gate}.weight")
        and scope.weight(f"ffn_up{suffix}.weight").shape[0] == 2 * width
    )
    up = linear(scope, x, f"ffn_up{suffix}", 2 * width if packed else width)
    if packed:  # gate and up in one weight
        sizes = op.const([width, width], ir.DataType.INT64)
        first, second = op.emit("Split", [up, sizes], {"axis": -1}, 2)
        hidden = op.Mul(activated(op, first, kind), second)
    elif decoder.architecture.gated:
        hidden = op.Mul(activated(op, linear(scope, x, gate, width), kind), up)
    else:
        hidden = activated(op, up, kind)
    return linear(scope, hidden, f"ffn_down{suffix}")
