"""A mixture of experts as products over stacked weights, every value as it is stored.

The portable ops for experts (MoE, QMoE) hold neither minimums nor float zero points, and ONNX
Runtime rounds activations in some of them, so experts are spelled out: the rows of every expert's
first weights lie below each other, those of the second ones side by side, and the routing weight,
0 for experts that are not chosen, multiplies between the two.
"""

from __future__ import annotations

import onnx_ir as ir

from frontends.decoder.config import Decoder, Experts
from frontends.decoder.draft import Scope, width
from frontends.decoder.linear import linear, product
from frontends.decoder.norms import plain_norm
from frontends.decoder.rows import rows, side_by_side, stacked
from frontends.decoder.weights import Weight
from rewriter.rules.parts.experts import WIDEST, Activation
from rewriter.rules.parts.routing import routing
from rewriter.tape import Tape

_BETWEEN = {
    "silu": Activation("swiglu"),
    "gelu_tanh": Activation("geglu"),
    "swiglu_oai": Activation("swiglu", alpha=1.702, beta=1.0, limit=7.0),
}
"""Of a gate and a value, by the name of the architecture's activation."""


def expert_layer(
    scope: Scope, decoder: Decoder, experts: Experts, x: ir.Value, routed: ir.Value
) -> ir.Value:
    """What the chosen experts make of x (B, S, hidden), weighted and added up.

    Args:
        scope: of the layer.
        decoder: the model.
        experts: how many there are and are used.
        x: normalized input.
        routed: what the router looks at, (B, S, hidden); often the same.
    """
    op, hidden = scope.op, decoder.hidden
    flat = op.Reshape(x, op.const([1, -1, hidden], ir.DataType.INT64))
    weights = _routing(scope, decoder, experts, routed)
    down = scope.sized("ffn_down_exps.weight", experts.count, hidden, None)
    inner, y = down.shape[2], None
    gate, up = _first(scope, (experts.count, inner, hidden))
    size = max(1, WIDEST // inner)
    for start in range(0, experts.count, size):
        group = range(start, min(start + size, experts.count))
        part = _group(scope, decoder, flat, weights, (gate, up, down), group)
        y = part if y is None else op.Add(y, part)
    assert y is not None
    if scope.has("ffn_down_exps.bias"):
        bias = scope.vector("ffn_down_exps.bias", experts.count, hidden)
        y = op.Add(y, op.MatMul(weights, bias))
    return op.Reshape(y, op.Shape(x))


def _first(scope: Scope, shape: tuple[int, int, int]) -> tuple[Weight, Weight]:
    """Gates and values of every expert, of the shape (E, F, hidden) each."""
    if scope.has("ffn_gate_up_exps.weight"):
        count, half, hidden = shape
        both = scope.sized("ffn_gate_up_exps.weight", count, 2 * half, hidden)
        return rows(both, 0, half), rows(both, half, 2 * half)
    gate, up = (scope.sized(f"ffn_{what}_exps.weight", *shape) for what in ("gate", "up"))
    return gate, up


def _routing(scope: Scope, decoder: Decoder, experts: Experts, x: ir.Value) -> ir.Value:
    """The weight of every expert for every token (1, B·S, E)."""
    op = scope.op
    if scope.has("ffn_gate_inp.scale"):
        scale = op.Mul(
            scope.vector("ffn_gate_inp.scale", decoder.hidden),
            op.const(decoder.hidden**-0.5, ir.DataType.FLOAT),
        )
        x = op.Mul(plain_norm(scope, decoder, x, decoder.hidden), scale)
    logits = linear(scope, x, "ffn_gate_inp", experts.count)
    logits = op.Reshape(logits, op.const([-1, experts.count], ir.DataType.INT64))
    weights = routing(op, logits, experts.used, normalize=experts.renormalized)
    if scope.has("ffn_down_exps.scale"):
        weights = op.Mul(weights, scope.vector("ffn_down_exps.scale", experts.count))
    return weights


def _group(
    scope: Scope,
    decoder: Decoder,
    x: ir.Value,
    weights: ir.Value,
    parts: tuple[Weight, Weight, Weight],
    group: range,
) -> ir.Value:
    """The share of some experts: x (1, T, hidden) and all weights (1, T, E) to (1, T, hidden)."""
    op, (gate, up, down) = scope.op, parts
    count, inner = len(group), down.shape[2]
    halves = [
        _biased(
            scope,
            product(scope, x, f"{name}.{group.start}", stacked(weight, group)),
            f"{name}.bias",
            (gate.shape[0], inner),
            group,
        )
        for name, weight in (("ffn_gate_exps", gate), ("ffn_up_exps", up))
    ]
    hidden = _BETWEEN[decoder.architecture.activation](op, *halves)
    if count < gate.shape[0]:
        weights = _sliced(op, weights, group, axis=2)
    by_expert = op.Reshape(hidden, op.const([0, 0, count, inner], ir.DataType.INT64))
    column = op.Unsqueeze(weights, op.const([3], ir.DataType.INT64))
    flat = op.const([0, 0, count * inner], ir.DataType.INT64)
    scaled = op.Reshape(op.Mul(by_expert, column), flat)
    return product(scope, scaled, f"ffn_down_exps.{group.start}", side_by_side(down, group))


def _biased(scope: Scope, x: ir.Value, name: str, shape: tuple[int, int], group: range) -> ir.Value:
    if not scope.has(name):
        return x
    op, bias = scope.op, scope.vector(name, *shape)
    chosen = _sliced(op, bias, group, axis=0)
    return op.Add(x, op.Reshape(chosen, op.const([-1], ir.DataType.INT64)))


def _sliced(op: Tape, x: ir.Value, group: range, axis: int) -> ir.Value:
    bounds = [op.const([at], ir.DataType.INT64) for at in (group.start, group.stop, axis)]
    return op.Slice(x, *bounds)


def shared_expert(scope: Scope, x: ir.Value, y: ir.Value) -> ir.Value:
    """What an expert for all tokens gives, y (B, S, hidden), by its own gate if it has one."""
    if not scope.has("ffn_gate_inp_shexp.weight"):
        return y
    op, name = scope.op, "ffn_gate_inp_shexp.weight"
    outer = (1,) * (len(scope.weight(name).shape) - 1)  # older converters drop an axis of one
    column = op.Reshape(scope.vector(name, *outer, width(x)), op.const([-1, 1], ir.DataType.INT64))
    return op.Mul(op.Sigmoid(op.MatMul(x, column)), y)
