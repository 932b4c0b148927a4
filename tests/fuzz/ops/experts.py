"""MoE and QMoE."""

from __future__ import annotations

from typing import Any

import numpy as np

from rewriter import packing
from tests.fuzz.case import F32, MS, Arg, Case, Draw, arg, draws

_MOE = (
    *("input", "router_probs", "fc1_experts_weights", "fc1_experts_bias", "fc2_experts_weights"),
    *("fc2_experts_bias", "fc3_experts_weights", "fc3_experts_bias"),
)
_QMOE = (
    *("input", "router_probs", "fc1_experts_weights", "fc1_scales", "fc1_experts_bias"),
    *("fc2_experts_weights", "fc2_scales", "fc2_experts_bias", "fc3_experts_weights"),
    *("fc3_scales", "fc3_experts_bias", "fc1_zero_points", "fc2_zero_points", "fc3_zero_points"),
    "router_weights",
)
_KINDS = ("relu", "silu", "gelu", "identity", "relu2", "swiglu", "geglu")


@draws(f"{MS}MoE", f"{MS}QMoE")
def experts(d: Draw, op: str) -> Case:
    quantized = op.endswith("QMoE")
    bits, block = (d.pick(4, 8, 2), d.pick(0, 16, 32)) if quantized else (0, 0)
    if bits == 2:  # of longer blocks ONNX Runtime rounds (rewriter/parity/exact_experts.py)
        block = 16
    step = max(block, 16) if quantized else 1
    hidden, inner = step * d.integer(1, 3), step * d.integer(1, 2)
    if not quantized:
        hidden, inner = hidden + 2, inner + 1
    count = d.pick(24, 96) if d.rarely() else d.integer(1, 4)  # of many, few are gathered
    k = d.integer(1, min(count, 4))
    shape = (*d.pick((d.integer(1, 5),), (1, d.integer(1, 4)), (2, 3)), hidden)
    tokens = int(np.prod(shape[:-1]))
    activation = d.pick(*_KINDS)
    gated = activation in {"swiglu", "geglu"}
    fusion = d.pick(0, 1, 2) if gated else 0
    rows = inner * (2 if gated and fusion else 1)
    x, logits = d.floats(shape), d.floats((tokens, count))
    if d.rarely():
        logits = d.given(np.round(logits.array), F32)
    inputs: dict[str, Arg | None] = {"input": x, "router_probs": logits}
    biased, points = d.flag(), quantized and d.flag()
    for fc, n, m in (("fc1", rows, hidden), ("fc2", hidden, inner), ("fc3", inner, hidden)):
        if fc == "fc3" and not (gated and fusion == 0):
            continue
        inputs |= _linear(d, fc, (count, n, m), bits, block, points=points)
        if biased:
            inputs[f"{fc}_experts_bias"] = d.floats((count, n), const=not d.rarely())
    said: dict[str, Any] = {"k": k, "activation_type": activation}
    if fusion or d.rarely():
        said["swiglu_fusion"] = fusion
    said |= d.attributes(
        normalize_routing_weights=[None, 0, 1], use_sparse_mixer=[None, None, None, 0]
    )
    if activation == "swiglu":
        said |= d.attributes(
            activation_alpha=[None, 1.0, 1.7], activation_beta=[None, 0.0, 1.0],
            swiglu_limit=[None, None, 1.0, 7.0],
        )  # fmt: skip
        if d.rarely():
            said["swiglu_limit_after_activation"] = d.pick(0, 1)
    if quantized:
        said["expert_weight_bits"] = bits
        said |= {"block_size": block} if block else {}
        said |= d.attributes(accuracy_level=[None, None, 0])
        if d.rarely():
            inputs["router_weights"] = d.floats((tokens, count))
    order = _QMOE if quantized else _MOE
    last = max(i for i, name in enumerate(order) if inputs.get(name) is not None)
    given = {name: inputs.get(name) for name in order[: last + 1]}
    return Case(op, given, [F32], said, d.opset(16, 24), symbolic=d.rarely())


def _linear(
    d: Draw, fc: str, shape: tuple[int, int, int], bits: int, block: int, *, points: bool
) -> dict[str, Arg | None]:
    count, n, m = shape
    if not bits:
        weight = d.rng.standard_normal(shape) / np.sqrt(m)
        return {f"{fc}_experts_weights": d.given(weight, F32, const=not d.rarely())}
    blocks = m // block if block else 1
    codes = d.rng.integers(0, 256, (count, n, m * bits // 8)).astype(np.uint8)
    scales = d.rng.uniform(0.5, 1.5, (count, n, blocks)) / np.sqrt(m) / (1 << (bits - 1))
    found: dict[str, Arg | None] = {
        f"{fc}_experts_weights": arg(codes, const=True),
        f"{fc}_scales": d.given(scales if block else scales[:, :, 0], F32, const=True),
    }
    if points:
        numbers = d.rng.integers(0, 1 << bits, scales.shape).astype(np.uint8)
        packed = packing.pack_bits(numbers if block else numbers[:, :, 0], bits)
        found[f"{fc}_zero_points"] = arg(packed, const=True)
    return found
