"""Tile to Concat.

y repeats x along every axis as often as ``repeats`` says (onnx Operators.md, Tile 13). Axes that
are not repeated are joined first, so that what is concatenated has as few axes as possible; uint8
goes through int32, which NPUs concatenate.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import in_shape
from rewriter.site import Site
from rewriter.tape import Tape

_MOST = 64
"""Copies along one axis beyond which a graph of them is no help."""


@lowers("Tile", emits=("Cast", "Concat", "Identity", "Reshape"), opset=13)
def copies(op: Tape, site: Site) -> ir.Value:
    """Concat of the copies along one axis after the other."""
    x = site.input("input")
    shape = site.shape(x, "input")
    repeats = [int(r) for r in site.constant(site.input("repeats"), "repeats")]
    site.require(max(repeats, default=1) <= _MOST, f"more than {_MOST} copies along an axis")
    site.require(min(repeats, default=1) > 0, "a repeat of 0 leaves nothing")
    if all(r == 1 for r in repeats):
        return op.Identity(x)
    dims: list[int] = []
    times: list[int] = []
    for size, count in zip(shape, repeats, strict=True):
        joined = count == 1 and times and times[-1] == 1
        if joined:
            dims[-1] *= size
        elif size == 1 and count == 1:
            continue
        else:
            dims.append(size)
            times.append(count)
    wide = x.dtype == ir.DataType.UINT8
    y = in_shape(op, op.Cast(x, to=ir.DataType.INT32) if wide else x, tuple(dims))
    for axis, count in enumerate(times):
        if count > 1:
            y = op.Concat(*[y] * count, axis=axis)
    y = in_shape(op, y, tuple(s * r for s, r in zip(shape, repeats, strict=True)))
    return op.Cast(y, to=x.dtype) if wide else y
