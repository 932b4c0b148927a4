"""Convolutions that keep a state."""

from __future__ import annotations

from tests.fuzz.case import F32, MS, Arg, Case, Draw, draws


@draws(f"{MS}CausalConvWithState")
def causal_conv_with_state(d: Draw, op: str) -> Case:
    batch, channels, tokens = d.integer(1, 3), d.integer(1, 5), d.integer(1, 6)
    kernel = d.pick(3, 2, 4, 3, 2, 1)
    said = d.attributes(activation=[None, "none", "silu", "swish"], dilation=[None, None, 2])
    width = (kernel - 1) * said.get("dilation", 1)
    inputs: dict[str, Arg | None] = {
        "input": d.floats((batch, channels, tokens)),
        "weight": d.floats((channels, 1, kernel), const=None),
        "bias": d.floats((channels,), const=None) if d.flag() else None,
        "past_state": d.floats((batch, channels, width)) if d.flag() else None,
    }
    return Case(op, inputs, [F32, F32], said, d.opset(13, 24))
