"""Stored integer weights: MatMulNBits, GatherBlockQuantized, DequantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from tests.fuzz.case import F32, I32, I64, MS, Arg, Case, Draw, arg, draws


@draws(f"{MS}MatMulNBits")
def matmul_nbits(d: Draw, op: str) -> Case:
    kind = d.kind()
    bits, block = d.pick(4, 4, 8, 2), d.pick(16, 32, 64)
    k = block * d.integer(1, 4) if not d.rarely() else d.integer(1, 3 * block)
    if d.rarely():  # more columns than some targets take
        k = d.pick(32768, 65536, 16384 + block, 40000)
    n, blocks = d.integer(1, 9), -(-k // block)
    codes = d.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = d.rng.uniform(0.05, 0.3, (n, blocks)) * d.rng.choice([-1, 1], (n, blocks))
    shape = d.shape(0, 2, 3)
    inputs: dict[str, Arg | None] = {
        "A": d.floats((*shape, d.integer(1, 4), k), kind),
        "B": arg(codes, const=not d.rarely()),
        "scales": d.given(scales if d.flag() else scales.reshape(-1), kind, const=not d.rarely()),
    }
    points = d.pick("none", "none", "packed", "floats")
    if points == "packed":
        count = -(-blocks * bits // 8)
        packed = d.rng.integers(0, 256, (n, count)).astype(np.uint8)
        inputs["zero_points"] = arg(
            packed if d.flag() else packed.reshape(-1), const=not d.rarely()
        )
    elif points == "floats":
        numbers = d.rng.uniform(0, 1 << bits, (n, blocks))
        numbers = numbers if d.flag() else np.round(numbers)
        inputs["zero_points"] = d.given(numbers, kind, const=not d.rarely())
    if d.rarely() and bits != 2:  # ONNX Runtime's kernel gives another result every time
        inputs.setdefault("zero_points", None)
        order = np.arange(k) // block if d.flag() else d.rng.integers(0, blocks, k)
        inputs["g_idx"] = d.given(order, I32, const=True)
    if d.flag():
        inputs.setdefault("zero_points", None)
        inputs.setdefault("g_idx", None)
        inputs["bias"] = d.floats((n,), kind, const=None)
    said: dict[str, Any] = {"K": k, "N": n, "block_size": block}
    if bits != 4 or d.flag():
        said["bits"] = bits
    said |= d.attributes(accuracy_level=[None, 0, 1, 4])
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


@draws(f"{MS}GatherBlockQuantized")
def gather_block_quantized(d: Draw, op: str) -> Case:
    kind = d.kind()
    stored = d.pick(ir.DataType.UINT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4)
    bits = d.pick(4, 8, 2) if stored == ir.DataType.UINT8 else 4
    block = d.pick(16, 32)
    shape = [d.integer(2, 6), *d.shape(0, 1, 3), 0]
    rank = len(shape)
    quantize = rank - 1 if stored == ir.DataType.UINT8 or d.flag() else d.integer(0, rank - 1)
    shape[-1] = block * d.integer(1, 2) if not d.rarely() else 2 * d.integer(4, 20)
    gather = d.pick(*[i for i in range(rank) if i != quantize])
    if shape[-1] * bits % 8:
        shape[-1] = 8
    per_block = list(shape)
    per_block[quantize] = -(-shape[quantize] // block)

    def integers(dims: list[int]) -> Arg:
        codes = d.rng.integers(0, 1 << bits, dims)
        if stored == ir.DataType.UINT8:
            return arg(packing.pack_bits(codes.astype(np.uint8), bits), const=True)
        signed = codes - 8 if stored == ir.DataType.INT4 else codes
        return arg(packing.integers(signed, stored), const=True)

    scales = d.rng.uniform(0.1, 1, per_block)
    rows = shape[gather]
    inputs: dict[str, Arg | None] = {
        "data": integers(shape),
        "indices": d.integers(-rows, rows, d.shape(0, 2, 4), d.pick(I64, I32), const=None),
        "scales": d.given(scales, kind, const=not d.rarely()),
    }
    if d.flag():
        inputs["zero_points"] = integers(per_block)
    said: dict[str, Any] = {"bits": bits, "block_size": block}
    said["gather_axis"] = gather - rank if d.rarely() else gather
    said["quantize_axis"] = quantize - rank if d.rarely() else quantize
    return Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())


_CODES = ("INT4", "UINT4", "INT8", "UINT8", "INT8", "INT32")


@draws("DequantizeLinear")
def dequantize(d: Draw, op: str) -> Case:
    stored = ir.DataType[d.pick(*_CODES)]
    opset = d.opset(21, 24) if stored.bitwidth == 4 or d.flag() else d.opset(13, 24)
    kind = d.kind() if opset >= 19 else F32
    shape = list(d.shape(1, 3, 8))
    how = d.pick("tensor", "axis", "blocked" if opset >= 21 else "tensor")
    axis = d.integer(0, len(shape) - 1)
    said: dict[str, Any] = {}
    dims: list[int] = []
    if how == "axis":
        dims = [shape[axis]]
    elif how == "blocked":
        said["block_size"] = block = d.pick(2, 16, 32)
        shape[axis] = block * d.integer(1, 3)
        dims = list(shape)
        dims[axis] //= block
    if how != "tensor" or d.rarely():
        said["axis"] = axis - len(shape) if d.flag() else axis
    bits = min(stored.bitwidth, 8)
    low = -(1 << (bits - 1)) if stored.is_signed() else 0

    def integers(size: list[int], *, const: bool) -> Arg:
        numbers = d.rng.integers(low, low + (1 << bits), size)
        if stored.bitwidth == 4:
            return arg(packing.integers(np.asarray(numbers), stored), const=True)
        return arg(np.asarray(numbers).astype(stored.numpy()), const=const)

    inputs: dict[str, Arg | None] = {
        "x": integers(shape, const=not d.rarely()),
        "x_scale": d.given(d.rng.uniform(0.05, 1, dims), kind, const=not d.rarely()),
    }
    if stored != ir.DataType.INT32 and d.flag():
        zero = d.rarely()
        point = integers(dims, const=not d.rarely())
        if zero:
            numbers = np.zeros(dims, np.int8)
            point = arg(packing.integers(numbers, stored), const=True)
        inputs["x_zero_point"] = point
    return Case(op, inputs, [kind], said, opset, symbolic=d.rarely())
