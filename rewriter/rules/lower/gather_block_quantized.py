"""com.microsoft GatherBlockQuantized to a dequantized table, Gather, and products.

y[i, k] = scales[i, k/b] · (codes[i, k] - zero_points[i, k/b]) for row i of a table in blocks of b
along another axis than rows are taken along. Without zero points uint8 data means 2^(bits-1),
int4 and uint4 data 0 (D24; ORT's ``gather_block_quantized.cc``). A last block that is not full is
filled with zeros, which are cut off again.

The codes are whole numbers until then (:mod:`rewriter.rules.parts.code_tables`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.code_tables import read_codes, whole_table
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape


def _axes(site: Site, rank: int) -> tuple[int, int]:
    """The axes that rows are taken along and that blocks run along."""
    gather, quantize = (site.integer(name) % rank for name in ("gather_axis", "quantize_axis"))
    site.require(gather != quantize, f"rows along axis {gather}, which the blocks run along")
    return gather, quantize


@lowers(
    "com.microsoft::GatherBlockQuantized",
    emits=("Cast", "DequantizeLinear", "Gather", "Mul", "Reshape", "Slice", "Sub", "Unsqueeze"),
    opset=21,
)
def gather_of_dequantized(op: Tape, site: Site) -> ir.Value:
    """(Gather(codes) - Gather(zero_points)) · Gather(scales), block by block."""
    data, indices, scales = (site.input(name) for name in ("data", "indices", "scales"))
    kind = read_codes(site, data)
    dims = list(site.shape(data, "data"))
    gather, quantize = _axes(site, len(dims))
    if kind.packed:
        dims[-1] *= 8 // kind.bits
        last = site.shape(scales, "scales")[-1]
        site.require(quantize == len(dims) - 1 or last == dims[-1], "scales and data do not fit")
    block, dtype = site.integer("block_size"), scales.dtype
    site.require(dtype != ir.DataType.BFLOAT16, "bfloat16 has no kernel to check it with")
    site.require(block > 0, "a block_size of 0 is for FP8 and FP4 data")
    width, blocks = dims[quantize], -(-dims[quantize] // block)

    def along(size: int) -> tuple[int, ...]:
        return (*dims[:quantize], size, *dims[quantize + 1 :])

    def rows(table: ir.Value) -> ir.Value:
        found = op.Gather(table, indices, axis=gather)
        return found if found.dtype == dtype else op.Cast(found, to=dtype)

    site.require(site.shape(scales, "scales") == along(blocks), "the scales do not fit the data")
    inside = site.rank(indices, "indices") - 1 if gather < quantize else 0
    axis = quantize + inside
    rest = dims[quantize + 1 :]
    if gather > quantize:
        at = gather - quantize - 1
        rest[at : at + 1] = site.shape(indices, "indices")

    def per_block(x: ir.Value) -> ir.Value:
        return op.Unsqueeze(x, op.const(np.array([axis + 1], np.int64), name="within_block"))

    codes = rows(whole_table(op, site, data, kind, along(blocks * block), "data"))
    y = _reshape(op, codes, axis, (blocks, block, *rest))
    points = site.optional("zero_points")
    if points is not None:
        y = op.Sub(
            y, per_block(rows(whole_table(op, site, points, kind, along(blocks), "zero_points")))
        )
    y = _reshape(op, op.Mul(y, per_block(rows(scales))), axis, (blocks * block, *rest))
    if width != blocks * block:
        y = sliced(op, y, 0, width, axis)
    return y


def _reshape(op: Tape, x: ir.Value, outer: int, last: Sequence[int]) -> ir.Value:
    """The outer dims as they are, whatever they are, and other last ones."""
    return reshaped(op, x, [0] * outer + list(last), "blocks_shape")
