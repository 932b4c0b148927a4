"""Elementwise ops: the Gelu family, Swish, Mish, ops that HTP takes up to rank 4."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.case import BOOL, F16, F32, I32, I64, MS, Array, Case, Draw, draws


def _wide(d: Draw, shape: tuple[int, ...]) -> Array:
    """One of them above 3, so that the largest result is none of those that nearly cancel."""
    x = np.array(3 * d.rng.standard_normal(shape))
    x.reshape(-1)[0] = 3 + abs(x.reshape(-1)[0])
    return x


@draws(f"{MS}BiasGelu", f"{MS}FastGelu", f"{MS}Gelu", f"{MS}QuickGelu")
def contrib(d: Draw, op: str) -> Case:
    shape, kind = d.shape(1, 5), d.kind()
    inputs = {("A" if op.endswith("BiasGelu") else "X"): d.given(_wide(d, shape), kind)}
    if op.endswith("BiasGelu"):
        inputs["B"] = d.floats(shape[-1:], kind, const=None)
    elif op.endswith("FastGelu") and d.flag():
        inputs["bias"] = d.floats(shape[-1:], kind, const=None)
    said = (
        d.attributes(alpha=[None, 1.0, 0.5, 1.702, -0.7, 0.0]) if op.endswith("QuickGelu") else {}
    )
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws("Gelu", "Swish", "Mish")
def standard(d: Draw, op: str) -> Case:
    shape, kind = d.shape(0, 5), d.kind()
    said = {}
    if op == "Gelu":
        said = d.attributes(approximate=[None, "none", "tanh"])
    elif op == "Swish":
        said = d.attributes(alpha=[None, 1.0, 0.5, 1.702, -2.0])
    wide = _wide(d, shape)
    x = d.given(-wide if said.get("alpha", 1) < 0 else wide, kind)
    low = {"Gelu": 20, "Swish": 24, "Mish": 18}[op]
    return Case(op, {"X": x}, [kind], said, d.opset(low, 25), symbolic=d.rarely())


@draws(
    "Atan", "Ceil", "Cos", "Elu", "Floor", "HardSigmoid", "HardSwish", "Log", "Neg", "Not", "Selu",
    "Sign", "Sin", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip
def elementwise(d: Draw, op: str) -> Case:
    shape = d.shape(5, 5, 4) if d.flag() else d.shape(1, 6, 4)
    name = "input" if op in {"Atan", "Cos", "Sin", "Sign", "Tanh"} else "X"
    opset = d.opset(14, 24)
    if op == "Not":
        return Case(op, {"X": d.integers(0, 2, shape, BOOL)}, [BOOL], {}, opset)
    kind = d.pick(F32, F16) if op not in {"Atan"} else F32
    x = d.floats(shape, kind, spread=2)
    if op in {"Log", "Sqrt"}:
        x = d.given(np.abs(x.array.astype(np.float64)) + 0.1, kind)
    said = {}
    if op == "Elu":
        said = d.attributes(alpha=[None, 0.5, 2.0])
    elif op == "Selu":
        said = d.attributes(alpha=[None, 1.1], gamma=[None, 1.3])
    elif op == "HardSigmoid":
        said = d.attributes(alpha=[None, 0.3], beta=[None, 0.1])
    return Case(op, {name: x}, [kind], said, opset)


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


@draws(f"{MS}BiasAdd", f"{MS}BiasSplitGelu")
def diffusion(d: Draw, op: str) -> Case:
    """Without a kernel on ONNX Runtime's CPU: by the formula."""
    kind = d.kind()
    width = 2 * d.integer(1, 5)
    shape = (*d.shape(2, 2), width)
    numbers = d.rng.standard_normal(shape)
    numbers[..., width // 2] = 4 + abs(numbers[..., width // 2])  # as in _wide, bias included
    x, bias = d.given(numbers, kind), d.floats((width,), kind, const=None)
    inputs = {"X": x, "bias": bias}
    if op.endswith("BiasAdd"):
        inputs["skip"] = d.floats(shape, kind)

    def formula() -> list[Array]:
        total: Array = x.array.astype(np.float64) + bias.array
        if op.endswith("BiasAdd"):
            return [total + inputs["skip"].array]
        a, b = np.split(total, 2, axis=-1)
        return [a * b / 2 * (1 + _erf(b / math.sqrt(2)))]

    return Case(op, inputs, [kind], {}, d.opset(13, 24), oracle=formula)


@draws("Reciprocal", "IsNaN")
def plain(d: Draw, op: str) -> Case:
    shape, kind = d.shape(0, 5), d.kind()
    x = d.floats(shape, kind).array
    if op == "Reciprocal":
        x = np.where(np.abs(x) < 0.1, 1, x)
        return Case(op, {"X": d.given(x, kind)}, [kind], {}, d.opset(13, 24), symbolic=d.rarely())
    x = np.where(d.rng.random(shape) < 0.3, np.nan, x)
    x = np.where(d.rng.random(shape) < 0.1, np.inf, x)
    return Case(op, {"X": d.given(x, kind)}, [BOOL], {}, d.opset(13, 24), symbolic=d.rarely())


@draws("Pow")
def power(d: Draw, op: str) -> Case:
    shape, kind = d.shape(0, 5), d.kind()
    wanted = d.pick(2.0, 0.5, 3.0, -1.0, -0.5, 1.0, 0.0, 1.5)
    exponent = d.given(wanted, d.pick(kind, F32, I64, I32), const=None)
    x = np.abs(d.rng.standard_normal(shape)) + 0.5
    return Case(op, {"X": d.given(x, kind), "Y": exponent}, [kind], {}, d.opset(13, 24))
