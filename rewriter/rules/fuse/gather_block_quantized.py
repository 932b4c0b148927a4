"""DequantizeLinear of a stored table -> Gather raised to com.microsoft GatherBlockQuantized.

Only where the target does not take it: HTP has no stand-alone DequantizeLinear with a scale per
row or block, and would dequantize the whole table on the CPU in every call. The codes stay as
they are, but int8 ones, which become unsigned; a scale for a row is repeated for blocks of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import fuses
from rewriter.rules.parts.quantized_weights import Array
from rewriter.site import Site
from rewriter.tape import Tape

_FOUR = (ir.DataType.INT4, ir.DataType.UINT4)
_EIGHT = (ir.DataType.INT8, ir.DataType.UINT8)
_LEAST = 16
"""The smallest block of a GatherBlockQuantized."""


def _pattern(op: Any, x: Any, x_scale: Any, indices: Any) -> Any:
    table = op.DequantizeLinear(x, x_scale, _allow_other_inputs=True, _outputs=["table"])
    return op.Gather(table, indices)


@fuses(
    "Gather",
    pattern=_pattern,
    emits=("com.microsoft::GatherBlockQuantized",),
    opset=21,
    needed=True,
)
def gather_block_quantized(op: Tape, site: Site) -> ir.Value:
    """Gather(DequantizeLinear(table), ids) as GatherBlockQuantized(table, ids, scales)."""
    table = site.others["table"]
    x, scale, point = (table.input("x"), table.input("x_scale"), table.optional("x_zero_point"))
    table.ignore("output_dtype")
    stored = table.stored(x, "the table")
    site.require(table.node.outputs[0].dtype == scale.dtype, "the scales have another type")
    dims = tuple(stored.shape.numpy())
    site.require(len(dims) == 2 and site.integer("axis", 0) == 0, "no rows of a matrix are taken")
    site.require(stored.dtype in _FOUR + _EIGHT, f"a table of {stored.dtype} is not handled")
    block = _block(table, dims)
    shape = (dims[0], dims[1] // block)

    def spread(given: ir.Value, what: str) -> Array:
        array = table.constant(given, what).reshape(dims[0], -1)
        return np.repeat(array, shape[1] // array.shape[1], axis=1)

    data, signed = x, stored.dtype == ir.DataType.INT8
    if signed:
        moved = ir.LazyTensor(
            lambda: ir.tensor(stored.numpy().view(np.uint8) ^ np.uint8(0x80)),
            ir.DataType.UINT8,
            ir.Shape(dims),
        )
        data = op.weight(("unsigned", x), moved, "codes")
    points = None
    if point is not None:
        points = spread(point, "the zero point").astype(np.int16) + 128 * signed
    elif stored.dtype == ir.DataType.UINT8:  # which means 128 there without one
        points = np.zeros(shape, np.int16)
    if points is not None and stored.dtype in _EIGHT and bool((points == 128).all()):
        points = None
    inputs = [data, site.input("indices"), op.const(spread(scale, "the scale"), scale.dtype)]
    if points is not None:
        kind = ir.DataType.UINT8 if stored.dtype in _EIGHT else stored.dtype
        inputs.append(op.weight(("points", point, shape), packing.integers(points, kind), "points"))
    return op.ms(
        "GatherBlockQuantized",
        *inputs,
        bits=stored.dtype.bitwidth,
        block_size=block,
        gather_axis=0,
        quantize_axis=1,
    )


def _block(table: Site, dims: tuple[int, ...]) -> int:
    """Columns that share a scale: a power of 2 that divides them."""
    width = dims[1]
    axis, block = table.integer("axis", 1) % 2, table.integer("block_size", 0)
    scales = table.stored(table.input("x_scale"), "the scale")
    if block:
        table.require(axis == 1, "the blocks run along the rows that are taken")
        table.require(width % block == 0, f"rows of {width} do not fill blocks of {block}")
    else:
        table.require(scales.size > 1, "one scale for all: it is dequantized as it is")
        table.require(axis == 0, "the scales are one per column")
    shared = block or width
    power = shared & -shared
    table.require(power >= _LEAST, f"{shared} columns share a scale: no multiple of {_LEAST}")
    return power
