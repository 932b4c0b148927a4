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
    """down(act(gate x) · up x), or down(act(up x)) where there is no gate; x is (B, S, hidden).

    Args:
        scope: of the layer.
        decoder: the model.
        x: normalized input.
        suffix: of the weights' names, for a shared expert.
    """
    op, kind = scope.op, decoder.architecture.activation
    up = linear(scope, x, f"ffn_up{suffix}")
    width = scope.weight(f"ffn_down{suffix}.weight").shape[1]
    if scope.has(f"ffn_gate{suffix}.weight"):
        hidden = op.Mul(activated(op, linear(scope, x, f"ffn_gate{suffix}"), kind), up)
    elif up.shape is not None and up.shape[2] == 2 * width:  # gate and up in one weight
        sizes = op.const([width, width], ir.DataType.INT64)
        gate, value = op.emit("Split", [up, sizes], {"axis": -1}, 2)
        hidden = op.Mul(activated(op, gate, kind), value)
    else:
        hidden = activated(op, up, kind)
    return linear(scope, hidden, f"ffn_down{suffix}")
