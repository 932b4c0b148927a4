"""Cast to bool as a comparison.

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
