"""A MatMul of a weight behind DequantizeLinear, in every form exporters write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
LOW = {"int2": -2, "uint2": 0, "int4": -8, "uint4": 0, "int8": -128, "uint8": 0}
BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


def weight(
    kind: str = "int4", grain: str = "channel", *, point: str = "any", rows: bool = False,
    dtype: ir.DataType = F32, cast: bool = False, k: int = 64, n: int = 8,
) -> ir.Model:  # fmt: skip
    """W (K, N), or (N, K) where ``rows``; without zero points, or with any or special ones."""
    b = Builder()
    low, count, stored = LOW[kind], 1 << BITS[kind], ir.DataType[kind.upper()]
    shape = (n, k) if rows else (k, n)
    k_axis = int(rows)
    scales: tuple[int, ...] = {"tensor": (), "channel": (n,)}.get(
        grain, tuple(d // 32 if i == k_axis else d for i, d in enumerate(shape))
    )
    codes = b.rng.integers(low, low + count, shape)

    def const(name: str, array: Any) -> ir.Value:
        if stored.bitwidth == 2:
            typed = np.asarray(array).astype(stored.numpy())
            return b.const(name, ir.tensor(typed, dtype=stored))
        return b.const(name, packing.integers(np.asarray(array), stored))

    if cast:
        x = b.op("Cast", b.const("bytes", codes.astype(np.uint8)), name="x", to=int(stored.value))
    else:
        x = const("x", codes)
    inputs = [x, b.const("scale", np.asarray(b.rng.uniform(0.1, 1, scales)).astype(dtype.numpy()))]
    if point:
        whole = {"zero": np.zeros(scales), "middle": np.full(scales, low + count // 2)}
        points = whole.get(point, b.rng.integers(low, low + count, scales))
        inputs.append(const("point", np.asarray(points).astype(np.int64)))
    blocked = {"axis": k_axis, "block_size": 32}
    more = {"tensor": {}, "channel": {"axis": 1 - k_axis}}.get(grain, blocked)
    w = b.op("DequantizeLinear", *inputs, name="w", **more)
    if rows:
        w = b.op("Transpose", w, name="wt", perm=[1, 0])
    y = b.op("MatMul", b.input("a", dtype, (1, k, k)), w, name="y")
    return b.model([(y, dtype, (1, k, n))], 25 if stored.bitwidth == 2 else 21)
