"""com.microsoft QuantizeLinear and DequantizeLinear to those of the standard.

Both round half to even and saturate (ORT contrib schema). Without ``axis`` there is one scale for
all; with it a row of them. A zero point that is absent means 0, of uint8 where it makes the type.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


def _axis(site: Site, x: ir.Value, scale: ir.Value) -> int | None:
    """The axis of a row of scales; refuses what only one of the two ops could mean."""
    axis, dims = site.attribute("axis"), site.shape(scale, "the scale")
    if dims in {(), (1,)}:
        return None
    site.require(axis is not None and len(dims) == 1, "several scales, and no axis they belong to")
    return int(axis) % site.rank(x, "x")


def _standard(op: Tape, site: Site, kind: str, scale_name: str, point_name: str) -> ir.Value:
    x, scale = site.input("x"), site.input(scale_name)
    point = site.optional(point_name)
    inputs = [x, scale] if point is None else [x, scale, point]
    axis = _axis(site, x, scale)
    return op.emit(kind, inputs, {"axis": axis})[0]


@lowers("com.microsoft::QuantizeLinear", emits=("QuantizeLinear",), opset=21)
def standard_quantize(op: Tape, site: Site) -> ir.Value:
    """QuantizeLinear of ai.onnx."""
    return _standard(op, site, "QuantizeLinear", "y_scale", "y_zero_point")


@lowers("com.microsoft::DequantizeLinear", emits=("DequantizeLinear",), opset=21)
def standard_dequantize(op: Tape, site: Site) -> ir.Value:
    """DequantizeLinear of ai.onnx."""
    return _standard(op, site, "DequantizeLinear", "x_scale", "x_zero_point")
