"""Cast to bool as a comparison, and of a stored bfloat16 tensor as what it holds.

A float is true where it is not 0, NaN included (onnx Operators.md, Cast): not (x = 0).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Cast", emits=("Equal", "Not"), form="input floating & to=9", opset=11)
def is_not_zero(op: Tape, site: Site) -> ir.Value:
    """Not(Equal(x, 0))."""
    x = site.input("input")
    site.ignore("to", "saturate", "round_mode")
    return op.Not(op.Equal(x, op.const(np.float32(0), x.dtype, name="zero")))


@lowers("Cast", emits=(), form="input const & input dtype bfloat16 & to=1")
def stored_as_float32(op: Tape, site: Site) -> ir.Value:
    """The bfloat16 constant stored as float32, which holds the same numbers in twice the bytes."""
    x = site.input("input")
    site.ignore("to", "saturate", "round_mode")
    given = site.stored(x, "input")
    op.note("bfloat16 constants are stored as float32, in twice the bytes")

    def widened() -> ir.TensorProtocol:
        return ir.tensor(given.numpy().astype(np.float32))

    shape = ir.Shape(given.shape.numpy())
    return op.weight(("float32", x), ir.LazyTensor(widened, ir.DataType.FLOAT, shape), "float32")
