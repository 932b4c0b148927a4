"""DequantizeLinear in blocks whose scales are all equal, as one with a scale per channel.

That is what a weight quantized per channel looks like behind MatMulNBits, which has blocks only.
HTP multiplies it with activations of any width, and blocks with those of 16 bits alone (the rows
of the table). Blocks whose scales differ have no such form but with other numbers: ``--grain
channel`` makes it, with the error stated.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.dequantized import rebuilt
from rewriter.rules.parts.quantized_weights import Array
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("DequantizeLinear", emits=("DequantizeLinear",), form="blocked", order=-2)
def equal_blocks_per_channel(op: Tape, site: Site) -> ir.Value:
    """The same codes with the one scale and zero point that all blocks of a channel have."""
    x, scale, point = site.input("x"), site.input("x_scale"), site.optional("x_zero_point")
    site.stored(x, "the weight")
    rank = site.rank(x, "the weight")
    site.require(rank > 1, "a vector has no channels")
    along = site.integer("axis", 1) % rank
    dims = site.shape(scale, "the scale")
    wide = [axis for axis in range(rank) if axis != along and dims[axis] > 1]
    site.require(len(wide) <= 1, "the scales differ along more than one axis")
    channel = wide[0] if wide else (1 if along == 0 else 0)
    scales = _one_per_channel(site, site.constant(scale, "the scale"), channel, "scales")
    points = None
    if point is not None:
        numbers = site.constant(point, "the zero point")
        found = _one_per_channel(site, numbers.astype(np.int16), channel, "zero points")
        points = op.const(found, point.dtype, name="zero_points")
    one = op.const(scales, scale.dtype, name="scales")
    return rebuilt(op, site, x, one, points, axis=channel, block_size=None)


def _one_per_channel(site: Site, array: Array, channel: int, what: str) -> Array:
    """(N,) of what is equal in all blocks of a channel, or a refusal."""
    rows = np.moveaxis(array, channel, 0).reshape(array.shape[channel], -1)
    equal = bool((rows == rows[:, :1]).all())
    site.require(equal, f"the {what} of its blocks differ: per channel it has other numbers")
    return rows[:, 0]
