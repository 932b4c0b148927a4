"""Reciprocal to a division: y = 1 / x (onnx Operators.md, Reciprocal 13).

QNN claims the float16 one before 2.7 and then creates no session (measured/README.md, trap 14).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Reciprocal", emits=("Div",), opset=7)
def one_over(op: Tape, site: Site) -> ir.Value:
    """Div(1, x)."""
    x = site.input("X")
    return op.Div(op.const(np.float32(1), x.dtype, name="one"), x)
