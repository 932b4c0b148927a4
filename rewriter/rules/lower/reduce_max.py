"""ReduceMax of integers by ReduceMin, where an EP has only that.

max(x) = -1 - min(-1 - x): -1 - x is the bitwise complement, so no integer overflows, and the
order is reversed exactly.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("ReduceMax", emits=("ReduceMin", "Sub"), form="data dtype int32/int64", opset=7)
def by_reduce_min(op: Tape, site: Site) -> ir.Value:
    """-1 - ReduceMin(-1 - data)."""
    data = site.input("data")
    axes = site.optional("axes")
    if axes is not None:
        site.constant(axes, "axes")
    names = ("axes", "keepdims", "noop_with_empty_axes")
    attributes = {name: site.attribute(name) for name in names if name in site.facts.attributes}
    ones = op.const(np.int8(-1), data.dtype, name="ones")
    inputs = (op.Sub(ones, data), *(() if axes is None else (axes,)))
    return op.Sub(ones, op.emit("ReduceMin", inputs, attributes)[0])
