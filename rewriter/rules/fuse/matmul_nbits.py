"""Block-quantized DequantizeLinear -> MatMul raised to com.microsoft MatMulNBits.

W (K, N) = (x - zero_point)·scale in blocks along K becomes MatMulNBits' codes (N, K/b, ·): the
same integers in another order. A zero point that is absent means 0 in DequantizeLinear and
2^(bits-1) in MatMulNBits, so signed codes move up by 2^(bits-1) and need none; unsigned codes
carry theirs (D25 of the public reports).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import fuses
from rewriter.site import Site
from rewriter.tape import Tape

_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


def _pattern(op: Any, a: Any, x: Any, x_scale: Any) -> Any:
    weight = op.DequantizeLinear(x, x_scale, _allow_other_inputs=True, _outputs=["weight"])
    return op.MatMul(a, weight)


@fuses("MatMul", pattern=_pattern, emits=("com.microsoft::MatMulNBits",), opset=13)
def matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """MatMul(a, DequantizeLinear(W)) as MatMulNBits(a, codes, scales, zero points)."""
    weight = site.others["weight"]
    a, x, scale = site.input("A"), weight.input("x"), weight.input("x_scale")
    block, axis = weight.integer("block_size"), weight.integer("axis")
    stored = weight.stored(x, "the weight")
    weight.ignore("output_dtype")  # the type of the scale, which is that of a (checked below)
    site.require(len(stored.shape) == 2, "the weight is no matrix")
    k, n = stored.shape.numpy()
    kind = stored.dtype.name.lower()
    site.require(kind in _BITS, f"weights of {kind} have no MatMulNBits form")
    site.require(block >= 16 and block & (block - 1) == 0, f"block_size {block} is no power of 2")
    site.require(axis in {0, -2}, "the blocks run along N, not along K")
    site.require(k % block == 0, f"K={k} does not fill its last block of {block}")
    site.require(scale.dtype == a.dtype, "the scale has another type than the activation")
    site.require(len(a.shape or ()) >= 3, "the activation has rank 2, which few EPs take")
    bits = _BITS[kind]

    codes = ir.LazyTensor(
        lambda: ir.tensor(packing.matrix_to_blocks(stored.numpy(), block, bits)),
        ir.DataType.UINT8,
        ir.Shape((n, k // block, block * bits // 8)),
    )
    given = weight.stored(scale, "the scale")
    scales = ir.LazyTensor(
        lambda: ir.tensor(np.ascontiguousarray(given.numpy().T), dtype=given.dtype),
        given.dtype,
        ir.Shape(list(reversed(given.shape.numpy()))),
    )
    zero_points = _zero_points(op, weight, kind, bits, k // block, n)
    return op.ms(
        "MatMulNBits",
        a,
        op.weight(("blocks", x, block), codes, "codes"),
        op.weight(("scales", scale), scales, "scales"),
        *([] if zero_points is None else [zero_points]),
        K=k,
        N=n,
        bits=bits,
        block_size=block,
    )


def _zero_points(
    op: Tape, weight: Site, kind: str, bits: int, blocks: int, n: int
) -> ir.Value | None:
    given = weight.optional("x_zero_point")
    if given is None:
        unsigned = np.zeros((blocks, n), np.uint8)
        return None if kind.startswith("int") else _packed(op, unsigned, bits)
    points = weight.constant(given, "the zero point")
    middle = 0 if kind.startswith("int") else 1 << (bits - 1)
    return None if bool(np.all(points == middle)) else _packed(op, points, bits)


def _packed(op: Tape, points: Any, bits: int) -> ir.Value:
    return op.const(packing.zero_points_to_blocks(points, bits), name="zero_points")
