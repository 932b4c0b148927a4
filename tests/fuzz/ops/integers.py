"""Products of quantized integers, and the quantizers of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from tests.fuzz.case import F32, MS, Arg, Case, Draw, draws

U8, I8 = ir.DataType.UINT8, ir.DataType.INT8


@draws(f"{MS}DynamicQuantizeMatMul", f"{MS}MatMulIntegerToFloat")
def products(d: Draw, op: str) -> Case:
    k, n = d.integer(1, 9), d.integer(4, 7)  # of few sums all may nearly cancel
    shape = (*d.shape(0, 2, 3), d.integer(1, 4), k)
    kind = d.pick(I8, U8)
    low = -128 if kind == I8 else 0
    row = d.pick((), (n,))
    b = d.integers(low, low + 256, (k, n), kind, const=not d.rarely())
    b_scale = d.given(d.rng.uniform(0.01, 0.1, row), F32, const=not d.rarely())
    point = None
    if d.flag():
        point = d.integers(low + 99, low + 156, row, kind, const=not d.rarely())
    dynamic = op.endswith("DynamicQuantizeMatMul")
    a_kind = d.pick(U8, I8)
    first = -128 if a_kind == I8 else 0
    inputs: dict[str, Arg | None] = {
        "A": d.floats(shape) if dynamic else d.integers(first, first + 256, shape, a_kind),
        "B": b,
    }
    if not dynamic:
        inputs["a_scale"] = d.given(0.02, F32, const=not d.rarely())
    inputs["b_scale"] = b_scale
    if not dynamic:
        inputs["a_zero_point"] = (
            d.integers(first, first + 256, (), a_kind, const=True) if d.flag() else None
        )
    inputs["b_zero_point"] = point
    if d.flag():
        inputs["bias"] = d.floats((n,), const=None)
    while next(reversed(inputs.values())) is None:
        inputs.popitem()
    return Case(op, inputs, [F32], {}, d.opset(13, 24), symbolic=d.rarely())


@draws(f"{MS}QuantizeLinear", f"{MS}DequantizeLinear")
def quantizers(d: Draw, op: str) -> Case:
    kind = ir.DataType[d.pick("UINT8", "INT8", "UINT16", "INT16")]
    shape = d.shape(1, 4, 5)
    axis = d.integer(0, len(shape) - 1)
    row = d.pick((), (), (shape[axis],))
    low, high = np.iinfo(kind.numpy()).min, np.iinfo(kind.numpy()).max
    scale = d.given(d.rng.uniform(0.01, 0.1, row), F32, const=not d.rarely())
    middle = (int(low) + int(high)) // 2
    point = d.integers(middle - 9, middle + 10, row, kind, const=not d.rarely())
    said: dict[str, Any] = {}
    if row or d.flag():
        said["axis"] = axis - len(shape) if d.flag() else axis
    if op.endswith("DequantizeLinear"):
        x = d.integers(int(low), int(high) + 1, shape, kind, const=None)
        inputs: dict[str, Arg | None] = {"x": x, "x_scale": scale}
        if d.flag():
            inputs["x_zero_point"] = point
        return Case(op, inputs, [F32], said, d.opset(13, 24), symbolic=d.rarely())
    inputs = {"x": d.floats(shape, spread=3), "y_scale": scale}
    given = d.flag()
    if given:
        inputs["y_zero_point"] = point
    return Case(op, inputs, [kind if given else U8], said, d.opset(13, 24), symbolic=d.rarely())
