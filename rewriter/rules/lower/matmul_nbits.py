"""com.microsoft MatMulNBits in another form of its own, or as ops of the standard.

The codes (N, K/b, ·) become a matrix (K, N) of the ONNX type of the same width: the same
integers, dequantized in blocks along axis 0 (or per column where one block spans K). Without
zero points MatMulNBits means 2^(bits-1): 4-bit codes then become signed ones with an explicit
zero point of 0, because some runtimes read a DequantizeLinear without one as unsigned
(measured/README.md, trap 3); 8-bit codes stay unsigned with 128.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape

_UNSIGNED = {4: ir.DataType.UINT4, 8: ir.DataType.UINT8}


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("com.microsoft::MatMulNBits[scales rank 1]",),
    form="scales rank 2",
    order=-1,
)
def flat_scales(op: Tape, site: Site) -> ir.Value:
    """The same node with its scales (N, K/b) as a row, which is how older readers want them."""
    scale = site.input("scales")
    flat = site.constant(scale, "scales").reshape(-1)
    names = ("A", "B", "scales", "zero_points", "g_idx", "bias")
    inputs = [site.optional(name) for name in names]
    inputs[2] = op.const(flat, scale.dtype, name="scales")
    while inputs[-1] is None:
        inputs.pop()
    attributes = {name: site.attribute(name) for name in site.node.attributes}
    return op.emit("com.microsoft::MatMulNBits", inputs, attributes)[0]


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("Add", "DequantizeLinear", "MatMul"),
    opset=21,
)
def dequantize_and_matmul(op: Tape, site: Site) -> ir.Value:
    """MatMul(A, DequantizeLinear(codes as (K, N), scales, zero points)) + bias."""
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    site.ignore("accuracy_level")  # leave to round activations, not a part of the function
    site.require(site.integer("weight_prepacked") == 0, "prepacked weights have their own layout")
    site.require(bits in _UNSIGNED, f"{bits}-bit codes have no ONNX type at opset {site.opset}")
    site.require(k % block == 0, f"K={k} does not fill its last block of {block}")
    a, b = site.input("A"), site.input("B")
    packed = site.stored(b, "B")
    blocks = k // block
    scale = site.input("scales")
    scales = site.constant(scale, "scales").reshape(n, blocks).T
    signed = bits == 4 and site.optional("zero_points") is None
    dtype = ir.DataType.INT4 if signed else _UNSIGNED[bits]

    def matrix() -> ir.TensorProtocol:
        codes = packing.blocks_to_matrix(packed.numpy().view(np.uint8), k, bits)
        return packing.integers(codes.astype(np.int8) - 8 if signed else codes, dtype)

    codes = ir.LazyTensor(matrix, dtype, ir.Shape((k, n)))
    points = packing.integers(_zero_points(site, signed, n, blocks, bits), dtype)
    per_column = blocks == 1
    if per_column:
        scales = scales[0]
        points = ir.tensor(points.numpy()[0], dtype=dtype)
    weight = op.DequantizeLinear(
        op.weight(("matrix", b, k), codes, "codes"),
        op.const(scales, scale.dtype, name="scales"),
        op.const(points.numpy(), dtype, name="zero_points"),
        axis=1 if per_column else 0,
        block_size=None if per_column else block,
    )
    y = op.MatMul(a, weight)
    bias = site.optional("bias")
    return y if bias is None else op.Add(y, bias)


def _zero_points(site: Site, signed: bool, n: int, blocks: int, bits: int) -> packing.Bytes:
    given = site.optional("zero_points")
    if given is None:
        middle = 0 if signed else 1 << (bits - 1)
        return np.full((blocks, n), middle, np.uint8)
    site.require(given.dtype == ir.DataType.UINT8, "float zero points are not handled")
    packed = site.constant(given, "zero_points").astype(np.uint8)
    return packing.zero_points_to_matrix(packed, n, blocks, bits)
