"""The DequantizeLinear of a stored weight once more, some of its inputs in another form."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.site import Site
from rewriter.tape import Tape


def rebuilt(
    op: Tape, site: Site, x: ir.Value, scale: ir.Value, points: ir.Value | None, **changes: Any
) -> ir.Value:
    """The node with other codes, scales and zero points, and attributes that change."""
    names = ("axis", "block_size", "output_dtype")
    attributes = {name: site.attribute(name) for name in names}
    if not attributes["block_size"]:
        attributes["block_size"] = None
    if not attributes["output_dtype"]:
        attributes["output_dtype"] = None
    return op.DequantizeLinear(x, scale, points, **{**attributes, **changes})


def zeros(op: Tape, site: Site, dtype: ir.DataType) -> ir.Value:
    """Zero points of 0, one for each scale."""
    shape = site.stored(site.input("x_scale"), "the scale").shape.numpy()
    return op.const(np.zeros(shape, np.int8), dtype, name="zero_point")
