"""A mixture of experts as products over stacked weights, every value as it is stored.

The portable ops for experts (MoE, QMoE) hold neither minimums nor float zero points, and ONNX
Runtime rounds activations in some of them, so experts are spelled out, as the rules that lower
those ops do (:mod:`rewriter.rules.parts.experts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import onnx_ir as ir

from frontends.decoder.config import Decoder, Experts
from frontends.decoder.draft import Scope, width
from frontends.decoder.inputs import adapted_experts, adapted_sum, prepared
from frontends.decoder.linear import linear, product
from frontends.decoder.norms import plain_norm
from frontends.decoder.rows import rows, side_by_side, stacked
from frontends.decoder.weights import Weight
from rewriter.rules.parts.expert_activation import Activation
from rewriter.rules.parts.experts import DenseExperts, Linear
from rewriter.rules.parts.routing import routing
from rewriter.tape import Tape

_BETWEEN = {
    "silu": Activation("swiglu"),
    "gelu_tanh": Activation("geglu"),
    "swiglu_oai": Activation("swiglu", alpha=1.702, beta=1.0, limit=7.0),
}
"""Of a gate and a value, by the name of the architecture's activation."""
_STACKS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


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
    op, hidden, count = scope.op, decoder.hidden, experts.count
    flat = op.Reshape(x, op.const([1, -1, hidden], ir.DataType.INT64))
    weights = _routing(scope, decoder, experts, routed)
    down = scope.sized("ffn_down_exps.weight", count, hidden, None)
    inner, bias = down.shape[2], "ffn_down_exps.bias"
    gate, up = _first(scope, (count, inner, hidden))
    y = None
    for group in _groups(scope, count):
        mixture = DenseExperts(
            len(group),
            inner,
            (
                _first_of(scope, "ffn_gate_exps", gate, group),
                _first_of(scope, "ffn_up_exps", up, group),
            ),
            _BETWEEN[decoder.architecture.activation],
            partial(_second_of, scope, down, group),
        )
        part = mixture(op, flat, _sliced(op, weights, group, 2) if len(group) < count else weights)
        y = part if y is None else op.Add(y, part)
    assert y is not None
    if scope.has(bias):
        y = op.Add(y, op.MatMul(weights, scope.vector(bias, count, hidden)))
    return op.Reshape(y, op.Shape(x))


def _groups(scope: Scope, count: int) -> Iterator[range]:
    """Runs of experts, and one by one those with a weight of their own, ``NAME.E.weight``.

    What a quantizer left as floats is such: it is multiplied by another input than the rest.
    """
    start = 0
    for expert in range(count):
        if any(scope.has(f"{name}.{expert}.weight") for name in _STACKS):
            if start < expert:
                yield range(start, expert)
            yield range(expert, expert + 1)
            start = expert + 1
    if start < count:
        yield range(start, count)


def _first_of(scope: Scope, name: str, weight: Weight, group: range) -> Linear:
    """The product with the rows of experts (E, F, hidden) below each other, bias added."""
    count, inner, hidden = weight.shape

    def linear(op: Tape, x: ir.Value) -> ir.Value:
        own = f"{name}.{group.start}"
        if scope.has(f"{own}.weight"):
            alone = scope.sized(f"{own}.weight", inner, hidden)
            y = product(scope, prepared(scope, x, own), own, alone)
        else:
            label = name if len(group) == count else own
            y = product(scope, prepared(scope, x, name), label, stacked(weight, group))
        y = adapted_experts(scope, x, name, y, group)
        if not scope.has(f"{name}.bias"):
            return y
        bias = scope.vector(f"{name}.bias", count, inner)
        chosen = bias if len(group) == count else _sliced(op, bias, group, 0)
        return op.Add(y, op.Reshape(chosen, op.const([-1], ir.DataType.INT64)))

    return linear


def _second_of(scope: Scope, weight: Weight, group: range, op: Tape, x: ir.Value) -> ir.Value:
    """The product with the columns of experts (E, hidden, F) beside each other."""
    count, hidden, inner = weight.shape
    name, own = "ffn_down_exps", f"ffn_down_exps.{group.start}"
    alone = scope.has(f"{own}.weight")
    stem = own if alone else name
    turned = x
    if any(scope.has(f"{stem}.{what}") for what in ("order", "prescale", "rotation")):
        parts = op.Reshape(x, op.const([0, 0, len(group), inner], ir.DataType.INT64))
        flat = op.const([0, 0, len(group) * inner], ir.DataType.INT64)
        turned = op.Reshape(prepared(scope, parts, stem), flat)
    if alone:
        y = product(scope, turned, own, scope.sized(f"{own}.weight", hidden, inner))
    else:
        label = name if len(group) == count else own
        y = product(scope, turned, label, side_by_side(weight, group))
    return adapted_sum(scope, x, name, y, group)


def _sliced(op: Tape, x: ir.Value, group: range, axis: int) -> ir.Value:
    bounds = [op.const([at], ir.DataType.INT64) for at in (group.start, group.stop, axis)]
    return op.Slice(x, *bounds)


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


def shared_expert(scope: Scope, x: ir.Value, y: ir.Value) -> ir.Value:
    """What an expert for all tokens gives, y (B, S, hidden), by its own gate if it has one."""
    if not scope.has("ffn_gate_inp_shexp.weight"):
        return y
    op, name = scope.op, "ffn_gate_inp_shexp.weight"
    outer = (1,) * (len(scope.weight(name).shape) - 1)  # older converters drop an axis of one
    column = op.Reshape(scope.vector(name, *outer, width(x)), op.const([-1, 1], ir.DataType.INT64))
    return op.Mul(op.Sigmoid(op.MatMul(x, column)), y)
