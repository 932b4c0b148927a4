"""Attentions in the words of exporters, and what to feed them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
LOWEST = float(np.finfo(np.float32).min)
B, H, S, T, D, DV = 2, 4, 3, 5, 8, 6


def attention(
    *, scale: str = "score", keys: str = "transposed", mask: str = "", hidden: float = -np.inf,
    stored: bool = False, guard: bool = False, zero: float = 0.0, cap: float | None = None,
    groups: str = "", kv_heads: int | None = None, dtype: ir.DataType = F32, wide: int = 0,
    opset: int = 23, axis: int = -1, used: str = "", dropout: bool = False, factor: float = 0.3,
) -> ir.Model:  # fmt: skip
    """softmax(cap(q·kᵀ·factor) + mask)·v in the words of an exporter.

    ``scale`` says where the factor is, ``keys`` how k is transposed, ``mask`` what is made of the
    bool input ``seen`` (a constant if ``stored``; ``float`` is an input to add), ``groups`` the
    order in which heads are repeated, ``wide`` the type of the softmax, ``used`` what is an output,
    too.
    """
    b = Builder()
    heads = kv_heads or (2 if groups else H)
    q = b.input("q", dtype, (B, H, S, D))
    k_shape = {"from rows": (B, T, heads, D), "given": (B, heads, D, T)}
    k = b.input("k", dtype, k_shape.get(keys, (B, heads, T, D)))
    v = b.input("v", dtype, (B, heads, T, DV))
    if groups:
        k, v = grouped(b, k, groups, D), grouped(b, v, groups, DV)
    half = number(b, "half", abs(factor) ** 0.5, dtype)
    k = columns(b, k, keys)
    if scale == "split":
        q, k = b.op("Mul", q, half, name="q/scaled"), b.op("Mul", half, k, name="k/scaled")
    x = b.op("MatMul", q, k, name="scores")
    if scale == "score":
        x = b.op("Mul", x, number(b, "factor", factor, dtype), name="scaled")
    elif scale == "divisor":
        x = b.op("Div", x, number(b, "divisor", 1 / factor, dtype), name="scaled")
    elif scale == "run-time":
        x = b.op("Mul", x, b.input("factor", dtype, ()), name="scaled")
    if cap is not None:
        bent = b.op("Tanh", b.op("Div", x, number(b, "1", cap, dtype), name="bent"), name="tanh")
        x = b.op("Mul", bent, number(b, "cap", cap, dtype), name="capped")
    if mask:
        x = masked(b, x, mask, hidden, stored, dtype)
    p = weights(b, x, wide, dtype, axis=axis)
    if guard:
        nan, replaced = b.op("IsNaN", p, name="nan"), number(b, "0", zero, dtype)
        p = b.op("Where", nan, replaced, p, name="guarded")
    p = b.op("Dropout", p, name="dropped") if dropout else p
    y = b.op("MatMul", p, v, name="y")
    outputs = [(y, dtype, (B, H, S, DV))]
    if used:
        value = next(o for n in b.nodes for o in n.outputs if o.name == used)
        outputs.append((value, dtype, (B, H, S, T)))
    return b.model(outputs, opset)


def number(b: Builder, name: str, value: float, dtype: ir.DataType) -> ir.Value:
    return b.const(name, np.array(value, dtype.numpy()))


def grouped(b: Builder, x: ir.Value, order: str, size: int) -> ir.Value:
    axis, name = np.array([2 if order == "repeat" else 1]), str(x.name)
    apart = b.op("Unsqueeze", x, b.const(f"{name}/axis", axis), name=f"{name}/1")
    sizes = b.const(f"{name}/sizes", np.array([B, 2, 2, T, size]))
    many = b.op("Expand", apart, sizes, name=f"{name}/2")
    shape = b.const(f"{name}/shape", np.array([B, 4, T, size]))
    return b.op("Reshape", many, shape, name=f"{name}/many")


def columns(b: Builder, k: ir.Value, keys: str) -> ir.Value:
    if keys == "given":
        return k
    if keys != "folded":
        perm = [0, 1, 3, 2] if keys == "transposed" else [0, 2, 3, 1]
        return b.op("Transpose", k, name="columns", perm=perm)
    rows = b.op("Reshape", k, b.const("rows", np.array([-1, T, D])), name="k/rows")
    transposed = b.op("Transpose", rows, name="k/transposed", perm=[0, 2, 1])
    return b.op("Reshape", transposed, b.const("four", np.array([B, H, D, T])), name="columns")


def weights(b: Builder, x: ir.Value, wide: int, dtype: ir.DataType, axis: int) -> ir.Value:
    x = b.op("Cast", x, name="wide", to=wide) if wide else x
    p = b.op("Softmax", x, name="weights", axis=axis)
    return b.op("Cast", p, name="narrow", to=int(dtype)) if wide else p


def masked(
    b: Builder, x: ir.Value, mask: str, hidden: float, stored: bool, dtype: ir.DataType
) -> ir.Value:
    zero, low = (b.const(name, np.array(number, dtype.numpy()))
                 for name, number in (("none", 0.0), ("low", hidden)))  # fmt: skip
    shape = (1, 1, T) if mask == "row" else (B, 1, S, T)
    if mask == "float":
        return b.op("Add", x, b.input("bias", dtype, shape), name="masked")
    seen = b.input("seen", ir.DataType.BOOL, shape)
    if stored:
        b.inputs.remove(seen)
        seen = b.const("seen", conditions(shape, hide=False))
    if mask == "select":
        return b.op("Where", seen, x, low, name="masked")
    if mask == "select unseen":
        return b.op("Where", b.op("Not", seen, name="unseen"), low, x, name="masked")
    added = b.op("Where", seen, zero, low, name="mask")
    return b.op("Add", *((added, x) if mask == "add first" else (x, added)), name="masked")


def conditions(shape: tuple[int, ...], *, hide: bool) -> np.ndarray:
    seen = np.random.default_rng(5).random(shape) < 0.6
    seen[..., 1] = True
    if hide:
        seen[0, ..., -1, :] = False
    return seen


def given(model: ir.Model, *, hide: bool = False) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
        if value.name == "seen":
            found["seen"] = conditions(shape, hide=hide)
        else:
            assert value.dtype is not None
            found[str(value.name)] = rng.standard_normal(shape).astype(value.dtype.numpy())
    return found
