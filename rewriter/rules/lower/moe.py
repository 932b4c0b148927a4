"""com.microsoft MoE with float weights: products that all experts share, or of chosen experts.

fc1 (E, F·I, H), fc2 (E, H, I), fc3 (E, I, H); F = 2 where fc1 makes gates and values. The weight
of an expert is the softmax over all logits, or over the selected ones if
``normalize_routing_weights`` (ORT 1.32 contrib docs, ``moe_cpu.cc``).
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import experts as parts
from rewriter.rules.parts import moe_inputs as inputs
from rewriter.rules.parts import moe_layer, routing
from rewriter.rules.parts.expert_arrangement import Arrangement, Order
from rewriter.rules.parts.expert_floats import FloatLinear
from rewriter.site import Site
from rewriter.tape import Tape

_SPARED = 8
"""Experts for each one gathered from which on it pays: of 1.5 M floats ONNX Runtime takes 0.33 ms
where they are stored and 1.9 ms where they are gathered (OpenVINO the same; one thread, x86)."""


@lowers(
    "com.microsoft::MoE",
    emits=(*parts.EMITS, *routing.EMITS, *routing.SLOTS, "Gather"),
    order=-1,
    opset=20,
    direct=True,
)
def chosen_experts(op: Tape, site: Site) -> ir.Value:
    """The same of the experts that few tokens go to, whose weights are gathered."""
    return moe_layer.chosen_experts(op, site, _layer(op, site), spared=_SPARED)


@lowers("com.microsoft::MoE", emits=(*parts.EMITS, *routing.EMITS), opset=20)
def dense_experts(op: Tape, site: Site) -> ir.Value:
    """[W2_0 W2_1 ...] · (w · act([W1_0; W1_1; ...] · x + b1)) + w · b2."""
    return moe_layer.every_expert(op, site, _layer(op, site))


def _layer(op: Tape, site: Site) -> moe_layer.Layer:
    """The node's weights, or a refusal."""
    act = inputs.activation(site)
    names = ("fc1_experts_weights", "fc2_experts_weights")
    values = [site.input(name) for name in names]
    first, second = (site.stored(v, name) for v, name in zip(values, names, strict=True))
    count, hidden, inner = (int(d) for d in second.shape.numpy())
    separate = site.optional("fc3_experts_weights")
    rows = inner * (2 if act.gated and separate is None else 1)
    fits = (count, inputs.hidden_size(site), inner)
    inputs.require_shape(site, names[1], (count, hidden, inner), fits)
    shape = tuple(int(d) for d in first.shape.numpy())
    inputs.require_shape(site, names[0], shape, (count, rows, hidden))
    linears = [
        FloatLinear(
            values[0],
            first,
            Arrangement(inputs.order(site, act)),
            inputs.bias(site, "fc1_experts_bias", rows, count),
        )
    ]
    if separate is not None:
        third = site.stored(separate, "fc3_experts_weights")
        shape = tuple(int(d) for d in third.shape.numpy())
        inputs.require_shape(site, "fc3_experts_weights", shape, (count, inner, hidden))
        added = inputs.bias(site, "fc3_experts_bias", inner, count)
        linears.append(FloatLinear(separate, third, Arrangement(Order.plain), added))
    return moe_layer.Layer(
        count,
        inner,
        act,
        tuple(linears),
        FloatLinear(values[1], second, inputs.SIDE_BY_SIDE),
        inputs.second_bias(op, site, hidden, count),
        normalize=site.integer("normalize_routing_weights") == 1,
    )
