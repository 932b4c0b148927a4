"""CumSum that counts backwards or leaves each element out, to the plain one.

y_i = x_0 + ... + x_i; exclusive leaves x_i out; reverse sums from the other end (onnx
Operators.md, CumSum 14). Backwards is a Slice with step -1 before and after; exclusive is the
sum of x moved on by one behind a zero, so nothing is subtracted and nothing rounds differently.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import sliced
from rewriter.site import Site
from rewriter.tape import Tape

_END = np.iinfo(np.int64).max


@lowers("CumSum", emits=("Concat", "CumSum", "Slice"), opset=14)
def plain_sum(op: Tape, site: Site) -> ir.Value:
    """Flip(CumSum(Concat(0, Flip(x)[:-1])))."""
    x, given = site.input("x"), site.input("axis")
    shape = site.shape(x, "x")
    axis = int(site.constant(given, "axis").reshape(-1)[0]) % len(shape)
    reverse, exclusive = site.integer("reverse"), site.integer("exclusive")
    site.require(bool(reverse or exclusive), "it is neither reverse nor exclusive")

    y = sliced(op, x, -1, -_END, axis, -1) if reverse else x
    if exclusive:
        first = [1 if i == axis else d for i, d in enumerate(shape)]
        zero = op.const(np.zeros(first), x.dtype, name="zero")
        y = op.Concat(zero, sliced(op, y, 0, -1, axis, 1), axis=axis) if shape[axis] > 1 else zero
    y = op.CumSum(y, given)
    return sliced(op, y, -1, -_END, axis, -1) if reverse else y
