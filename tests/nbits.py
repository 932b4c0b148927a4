"""A MatMulNBits in any form, and the identity to feed it: what comes out is its weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
NBITS = "com.microsoft::MatMulNBits"


def nbits(
    *, k: int = 64, n: int = 8, bits: int = 4, block: int = 32, rank: int = 3,
    zero_points: str = "", bias: bool = False, groups: str = "", empty: bool = False,
    flat: bool = False, rows: int = 0, dtype: ir.DataType = F32, **more: Any,
) -> ir.Model:  # fmt: skip
    """The node, for an activation of K rows or another number of them."""
    b, rows = Builder(), rows or k
    blocks = -(-k // block)
    codes = b.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    codes = codes[:0] if empty else codes
    scales = b.rng.uniform(0.1, 1, (n, blocks)).astype(dtype.numpy())
    optional: list[ir.Value | None] = [None, None, None]
    if zero_points == "float":
        points = b.rng.uniform(0, (1 << bits) - 1, (n, blocks)).astype(np.float32)
        optional[0] = b.const("points", points.astype(dtype.numpy()))
    elif zero_points == "halves":
        optional[0] = b.const("points", np.full((n, blocks), 1.5, np.float32))
    elif zero_points == "bytes":
        optional[0] = b.const("points", np.zeros((n, blocks), np.uint8))
    elif zero_points:
        packed = b.rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        optional[0] = b.const("points", packed)
    if groups:
        own = np.arange(k, dtype=np.int32) // block
        shuffled = b.rng.permutation(own)
        uneven = np.minimum(own, own[::-1])
        reverse = own[::-1].copy()
        order = {"own": own, "reversed": reverse, "shuffled": shuffled, "uneven": uneven}
        optional[1] = b.const("groups", order[groups])
    if bias:
        optional[2] = b.const("bias", b.rng.standard_normal(n).astype(dtype.numpy()))
    while optional and optional[-1] is None:
        optional.pop()
    shape = {1: (k,), 2: (rows, k), 3: (1, rows, k), 4: (2, 1, rows // 2, k)}[rank]
    stored = scales.reshape(-1) if flat else scales
    inputs = [b.input("a", dtype, shape), b.const("codes", codes), b.const("scales", stored)]
    y = b.op(NBITS, *inputs, *optional, name="y",
             **{"K": k, "N": n, "bits": bits, "block_size": block, **more})  # fmt: skip
    return b.model([(y, dtype, (*shape[:-1], n))])


def given(model: ir.Model) -> ort.Arrays:
    shape = model.graph.inputs[0].shape
    assert shape is not None
    k = shape.numpy()[-1]
    return {"a": np.eye(k, dtype=np.float32).reshape(shape.numpy())}
