"""Layers of which one has a form that HTP takes and computes wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from rewriter import packing
from tests.graphs import Builder

F32, WIDTH, LAYERS, WRONG = ir.DataType.FLOAT, 64, 4, 2


def chain(product: Callable[[Builder, ir.Value, str, bool], ir.Value]) -> ir.Model:
    """Layers that add the tanh of a product to what they read; one of them is made wrong."""
    b = Builder()
    x = b.input("x", F32, (1, 8, WIDTH))
    for layer in range(LAYERS):
        name = f"layers.{layer}"
        mixed = b.op("Tanh", product(b, x, name, layer == WRONG), name=f"{name}/tanh")
        x = b.op("Add", x, mixed, name=f"{name}/out")
    return b.model([(x, F32, (1, 8, WIDTH))])


def without_zero_point(b: Builder, x: ir.Value, name: str, wrong: bool) -> ir.Value:
    """int4 of one scale: without a zero point HTP reads the nibbles as unsigned."""
    codes = b.rng.integers(-7, 8, (WIDTH, WIDTH)).astype(np.int8)
    stored = b.const(f"{name}/codes", packing.integers(codes, ir.DataType.INT4))
    zero = b.const(f"{name}/zero", packing.integers(np.zeros((), np.int8), ir.DataType.INT4))
    scale = b.const(f"{name}/scale", np.float32(0.02))
    points = [] if wrong else [zero]
    weight = b.op("DequantizeLinear", stored, scale, *points, name=f"{name}/weight")
    return b.op("MatMul", x, weight, name=f"{name}/product")


def blocked_uint4(b: Builder, x: ir.Value, name: str, wrong: bool) -> ir.Value:
    """Blocks with 16-bit activations: HTP adds a zero point instead of subtracting it."""
    codes = b.rng.integers(-7, 8, (WIDTH, WIDTH)).astype(np.int8)
    scales = b.const(f"{name}/scales", np.full((WIDTH // 32, WIDTH), 0.02, np.float32))
    points = np.zeros((WIDTH // 32, WIDTH), np.int8)
    dtype = ir.DataType.INT4
    if wrong:
        codes, points, dtype = codes + 8, points + 8, ir.DataType.UINT4
    weight = b.op(
        "DequantizeLinear",
        b.const(f"{name}/codes", packing.integers(codes, dtype)),
        scales,
        b.const(f"{name}/points", packing.integers(points, dtype)),
        name=f"{name}/weight",
        axis=0,
        block_size=32,
    )
    product = b.op("MatMul", quantized(b, x, f"{name}/in"), weight, name=f"{name}/product")
    return quantized(b, product, f"{name}/sum")


def quantized(b: Builder, x: ir.Value, name: str) -> ir.Value:
    """To 16 bits and back."""
    scale = b.const(f"{name}/scale", np.float32(16 / 65535))
    zero = b.const(f"{name}/zero", np.uint16(32768))
    integers = b.op("QuantizeLinear", x, scale, zero, name=f"{name}/integers")
    return b.op("DequantizeLinear", integers, scale, zero, name=f"{name}/float")
