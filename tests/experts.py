"""Mixtures of experts for tests: nodes of toy sizes, and what they compute typed out in numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from tests.graphs import Builder

Array = npt.NDArray[Any]
F32 = ir.DataType.FLOAT
MS = "com.microsoft::"


@dataclass(frozen=True)
class Toy:
    """A node MoE (``bits`` 0) or QMoE.

    Attributes:
        shape: of the input.
        experts: how many there are.
        inner: channels between the two products.
        k: experts of a token.
        activation: ``activation_type``.
        fusion: ``swiglu_fusion``; 0 with a gated activation adds fc3.
        bits: of the codes.
        bits2: of fc2's, if they have others.
        block: ``block_size``, 0 for scales per row.
        points: with zero points.
        biased: with biases.
        mixing: with ``router_weights``.
        ties: logits are drawn from three numbers.
        dtype: of everything that is float.
        more: other attributes.
    """

    shape: tuple[int, ...] = (1, 5, 64)
    experts: int = 4
    inner: int = 32
    k: int = 2
    activation: str = "silu"
    fusion: int = 0
    bits: int = 0
    bits2: int = 0
    block: int = 0
    points: bool = False
    biased: bool = False
    mixing: bool = False
    ties: bool = False
    dtype: ir.DataType = F32
    more: tuple[tuple[str, Any], ...] = field(default=())

    def __str__(self) -> str:
        kind = f"{self.bits} bits" if self.bits else "floats"
        rest = [f"k{self.k} of {self.experts}", f"{self.activation} {self.fusion}", str(self.shape)]
        rest += [f"block {self.block}"] if self.block else []
        rest += [name for name in ("points", "biased", "mixing", "ties") if getattr(self, name)]
        return ", ".join([kind, *rest, *(f"{k}={v}" for k, v in self.more), self.dtype.name])

    @property
    def gated(self) -> bool:
        """Whether fc1 makes gates and values, or fc1 and fc3 do."""
        return self.activation in {"swiglu", "geglu"}

    @property
    def tokens(self) -> int:
        """T."""
        return int(np.prod(self.shape[:-1]))


def model(toy: Toy, seed: int = 0) -> ir.Model:
    """The node, its weights stored."""
    b = Builder(seed)
    dtype = toy.dtype.numpy()
    hidden, inner, logits = toy.shape[-1], toy.inner, (toy.tokens, toy.experts)
    rows = inner * (2 if toy.gated and toy.fusion else 1)
    given: dict[str, ir.Value | None] = {
        "input": b.input("x", toy.dtype, toy.shape),
        "router_probs": b.input("r", toy.dtype, logits),
    }
    for fc, n, k in (("fc1", rows, hidden), ("fc2", hidden, inner), ("fc3", inner, hidden)):
        if fc == "fc3" and not (toy.gated and toy.fusion == 0):
            continue
        given |= _linear(b, toy, fc, n, k)
        if toy.biased:
            given[f"{fc}_experts_bias"] = b.const(
                f"{fc}_b", b.rng.standard_normal((toy.experts, n)).astype(dtype)
            )
    if toy.mixing:
        given["router_weights"] = b.input("m", toy.dtype, logits)
    order = _QMOE if toy.bits else _MOE
    inputs = [given.get(name) for name in order]
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, Any] = {"k": toy.k, "activation_type": toy.activation}
    attributes |= {"swiglu_fusion": toy.fusion} if toy.fusion else {}
    attributes |= {"expert_weight_bits": toy.bits} if toy.bits else {}
    attributes |= {"fc2_expert_weight_bits": toy.bits2} if toy.bits2 else {}
    attributes |= {"block_size": toy.block} if toy.block else {}
    op = f"{MS}QMoE" if toy.bits else f"{MS}MoE"
    y = b.op(op, *inputs, name="y", **attributes, **dict(toy.more))
    return b.model([(y, toy.dtype, toy.shape)])


_MOE = [
    *("input", "router_probs", "fc1_experts_weights", "fc1_experts_bias", "fc2_experts_weights"),
    *("fc2_experts_bias", "fc3_experts_weights", "fc3_experts_bias"),
]
_QMOE = [
    *("input", "router_probs", "fc1_experts_weights", "fc1_scales", "fc1_experts_bias"),
    *("fc2_experts_weights", "fc2_scales", "fc2_experts_bias", "fc3_experts_weights"),
    *("fc3_scales", "fc3_experts_bias", "fc1_zero_points", "fc2_zero_points", "fc3_zero_points"),
    "router_weights",
]


def _linear(b: Builder, toy: Toy, fc: str, n: int, k: int) -> dict[str, ir.Value | None]:
    dtype, spread = toy.dtype.numpy(), k**-0.5
    if not toy.bits:
        weight = (b.rng.standard_normal((toy.experts, n, k)) * spread).astype(dtype)
        return {f"{fc}_experts_weights": b.const(f"{fc}_w", weight)}
    bits = toy.bits2 if toy.bits2 and fc == "fc2" else toy.bits
    blocks = k // toy.block if toy.block else 1
    codes = b.rng.integers(0, 256, (toy.experts, n, k * bits // 8)).astype(np.uint8)
    scales = b.rng.uniform(0.5, 1.5, (toy.experts, n, blocks)) * spread / (1 << (bits - 1))
    scales *= b.rng.choice([-1, 1], scales.shape)
    scales = scales.astype(dtype)
    found: dict[str, ir.Value | None] = {
        f"{fc}_experts_weights": b.const(f"{fc}_w", codes),
        f"{fc}_scales": b.const(f"{fc}_s", scales if toy.block else scales[:, :, 0]),
    }
    if toy.points:
        points = b.rng.integers(0, 1 << bits, scales.shape).astype(np.uint8)
        packed = packing.pack_bits(points if toy.block else points[:, :, 0], bits)
        found[f"{fc}_zero_points"] = b.const(f"{fc}_z", packed)
    return found


def feeds(toy: Toy, seed: int = 0) -> dict[str, Array]:
    """Inputs; mixing weights of both signs, of one token all 0, of one adding up to 0 for k=2."""
    rng = np.random.default_rng(seed + 100)
    dtype, logits = toy.dtype.numpy(), (toy.tokens, toy.experts)
    found = {"x": rng.standard_normal(toy.shape).astype(dtype)}
    r = rng.standard_normal(logits)
    found["r"] = (rng.integers(-1, 2, logits) if toy.ties else r).astype(dtype)
    if toy.mixing:
        found["m"] = rng.standard_normal(logits).astype(dtype)
        found["m"][0] = 0
        found["m"][1, :2] = 1, -1
        found["r"][1] = np.arange(toy.experts)[::-1]
    return found


def formula(toy: Toy, mixture: ir.Model, given: dict[str, Array]) -> Array:
    """What the schema says, in float64, one token and one expert after the other."""
    stored = {
        name: np.asarray(value.const_value.numpy())
        for name, value in mixture.graph.initializers.items()
        if value.const_value is not None
    }
    more, wide = dict(toy.more), {k: v.astype(np.float64) for k, v in given.items()}
    x, r = wide["x"].reshape(toy.tokens, -1), wide["r"]
    w = {fc: _dense(toy, stored, fc) for fc in ("fc1", "fc2", "fc3") if f"{fc}_w" in stored}
    y = np.zeros_like(x)
    for t in range(toy.tokens):
        first = sorted(range(toy.experts), key=lambda e: (r[t, e], e), reverse=True)[: toy.k]
        if toy.mixing:
            weight = wide["m"][t, first]
            if more.get("normalize_routing_weights"):
                weight = weight / weight.sum() if weight.sum() else 0 * weight
            weight = np.where(weight > 1e-8, weight, 0)
        else:
            weight = np.exp(r[t] - r[t].max())
            all_of_them = not toy.bits and not more.get("normalize_routing_weights")
            total = weight.sum() if all_of_them else weight[first].sum()
            weight = weight[first] / total
        for e, share in zip(first, weight, strict=True):
            h = [w[fc][e] @ x[t] + _bias(stored, fc, e) for fc in ("fc1", "fc3") if fc in w]
            a = _activation(toy, h, more)
            y[t] += share * (w["fc2"][e] @ a + _bias(stored, "fc2", e))
    return y.reshape(toy.shape)


def _bias(stored: dict[str, Array], fc: str, expert: int) -> Any:
    return stored[f"{fc}_b"][expert].astype(np.float64) if f"{fc}_b" in stored else 0


def _dense(toy: Toy, stored: dict[str, Array], fc: str) -> Array:
    weight = stored[f"{fc}_w"]
    if not toy.bits:
        return weight.astype(np.float64)
    bits = toy.bits2 if toy.bits2 and fc == "fc2" else toy.bits
    scales = stored[f"{fc}_s"].astype(np.float64)
    scales = scales if toy.block else scales[:, :, None]
    count, n, blocks = scales.shape
    shifts = np.arange(0, 8, bits)
    codes = (weight[..., None].astype(int) >> shifts) % (1 << bits)
    codes = codes.reshape(count, n, blocks, -1)
    points: Any = 1 << (bits - 1)
    if toy.points:
        loose = (stored[f"{fc}_z"][..., None].astype(int) >> shifts) % (1 << bits)
        loose = loose.reshape(*stored[f"{fc}_z"].shape[:-1], -1)
        points = loose[..., :blocks] if toy.block else loose[:, :n, None]
        points = points[..., None]
    dense: Array = ((codes - points) * scales[..., None]).reshape(count, n, -1)
    return dense


def _activation(toy: Toy, h: list[Array], more: dict[str, Any]) -> Any:
    def sigmoid(v: Array) -> Any:
        return 1 / (1 + np.exp(-v))

    def gelu(v: Array) -> Any:
        return v / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))

    if not toy.gated:
        plain = {
            "identity": lambda v: v,
            "silu": lambda v: v * sigmoid(v),
            "relu": lambda v: np.maximum(v, 0),
            "relu2": lambda v: np.maximum(v, 0) ** 2,
            "gelu": gelu,
        }
        return plain[toy.activation](h[0])
    if toy.fusion == 0:
        g, v = h
    elif toy.fusion == 1:
        g, v = h[0][0::2], h[0][1::2]
    else:
        g, v = h[0][: toy.inner], h[0][toy.inner :]
    if toy.activation == "geglu":
        return gelu(g) * v
    alpha, beta = more.get("activation_alpha", 1.0), more.get("activation_beta", 0.0)
    limit, after = more.get("swiglu_limit", np.inf), more.get("swiglu_limit_after_activation", 0)
    v = np.clip(v, -limit, limit)
    if after:
        return np.minimum(g * sigmoid(alpha * g), limit) * (v + beta)
    g = np.minimum(g, limit)
    return g * sigmoid(alpha * g) * (v + beta)
