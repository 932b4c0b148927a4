"""com.microsoft MatMulNBits in another form of its own, or as ops of the standard.

The codes (N, K/b, ·) become a matrix (K, N) of the ONNX type of the same width (of 4 bits for
2-bit codes): the same integers, dequantized in blocks along axis 0 (or per column where one
block spans K). Without zero points MatMulNBits means 2^(bits-1): 2- and 4-bit codes then become
signed ones with an explicit zero point of 0, because some runtimes read a DequantizeLinear
without one as unsigned (measured/README.md, trap 3); 8-bit codes stay unsigned with 128.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts import nbits
from rewriter.site import Site
from rewriter.tape import Tape

_UNSIGNED = {2: ir.DataType.UINT4, 4: ir.DataType.UINT4, 8: ir.DataType.UINT8}
"""2-bit codes take the 4-bit type: their own needs opset 25, and HTP and OpenVINO misread it."""


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("com.microsoft::MatMulNBits[scales rank 1]",),
    form="not minimum beside",
    order=-1,
)
def flat_scales(op: Tape, site: Site) -> ir.Value:
    """The same node with scales and float zero points (N, K/b) as rows, as older readers want."""
    given = {name: site.optional(name) for name in ("scales", "zero_points")}
    square = {
        name: value
        for name, value in given.items()
        if value is not None and value.dtype != ir.DataType.UINT8 and site.rank(value, name) == 2
    }
    site.require(bool(square), "its scales are flat")
    return nbits.rebuilt(
        op,
        site,
        {name: _flat(op, value, site.stored(value, name)) for name, value in square.items()},
    )


def _flat(op: Tape, value: ir.Value, stored: ir.TensorProtocol) -> ir.Value:
    row = ir.LazyTensor(
        lambda: ir.tensor(stored.numpy().reshape(-1), dtype=stored.dtype),
        stored.dtype,
        ir.Shape([stored.size]),
    )
    return op.weight(("flat", value), row, value.name or "row")


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("Add", "Concat", "DequantizeLinear", "Gather", "MatMul", "ReduceSum", "Reshape"),
    order=3,
    opset=21,
)
def dequantize_and_matmul(op: Tape, site: Site) -> ir.Value:
    """MatMul(A, DequantizeLinear(codes as (K, N), scales, zero points)) + sums of A·m + bias."""
    k, n, block, bits = nbits.sizes(site)
    site.ignore("accuracy_level")  # leave to round activations, not a part of the function
    site.require(bits in _UNSIGNED, f"{bits}-bit codes have no ONNX type at opset {site.opset}")
    nbits.packed_zero_points(site)
    a, b = nbits.in_order(op, site)
    packed = site.stored(b, "B")
    blocks = -(-k // block)
    if k % block:
        k = blocks * block
        a = nbits.filled(op, site, a, k)
    scale = site.input("scales")
    given = site.stored(scale, "scales")
    floats = nbits.float_zero_points(site)
    signed = bits < 8 and (floats is not None or site.optional("zero_points") is None)
    dtype = ir.DataType.INT4 if signed else _UNSIGNED[bits]

    def matrix() -> ir.TensorProtocol:
        codes = packed.numpy().view(np.uint8)
        if bits == dtype.bitwidth:
            return packing.matrix_of_blocks(codes, k, dtype)
        loose = packing.blocks_to_matrix(codes, k, bits).astype(np.int8)
        return packing.integers(loose - (1 << (bits - 1)) if signed else loose, dtype)

    per_column = blocks == 1 or nbits.scaled_by_column(site)

    def transposed() -> ir.TensorProtocol:
        rows = given.numpy().reshape(n, blocks)
        rows = np.ascontiguousarray(rows[:, 0] if per_column else rows.T)
        return ir.tensor(rows, dtype=given.dtype)

    shape = (n,) if per_column else (blocks, n)
    weight = op.DequantizeLinear(
        op.weight(("matrix", b, k), ir.LazyTensor(matrix, dtype, ir.Shape((k, n))), "codes"),
        op.weight(
            ("scales", scale, shape),
            ir.LazyTensor(transposed, given.dtype, ir.Shape(shape)),
            "scales",
        ),
        _zero_points(op, site, dtype, shape),
        axis=1 if per_column else 0,
        block_size=None if per_column else block,
    )
    y = op.MatMul(a, weight)
    if floats is not None:
        y = op.Add(y, nbits.moved(op, site, a, floats))
    bias = site.optional("bias")
    return y if bias is None else op.Add(y, bias)


def _zero_points(op: Tape, site: Site, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
    given = site.optional("zero_points")
    if given is None or given.dtype != ir.DataType.UINT8:
        middle = 0 if dtype.is_signed() else 1 << (site.integer("bits") - 1)
        points = np.full(shape, middle, np.uint8)
        same = ("zero points", dtype, shape)
        return op.once(same, lambda: op.const(points, dtype, name="zero_points"))
    packed = site.constant(given, "zero_points").astype(np.uint8)
    blocks = -(-site.integer("K") // site.integer("block_size"))
    points = packing.zero_points_to_matrix(packed, shape[-1], blocks, site.integer("bits"))
    own = points if len(shape) > 1 else points[0]
    return op.const(own, dtype, name="zero_points")
