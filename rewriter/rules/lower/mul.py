"""Mul with its operands the other way round, where an EP minds their order.

HTP takes x · Reciprocal(root of the mean square) and a product with constants behind it for a norm
of its own. It then computes 0 unless those constants are one row of the last axis, and fails to
finalize where they come first (lowering.md, trap 3). Reciprocal · x is no such pattern, and right
with any constants. Where the norm can be raised to one op, the fusion has done so before.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Mul", emits=("Mul",), form="root last", opset=7)
def root_first(op: Tape, site: Site) -> ir.Value:
    """The product r · x for x · r."""
    return op.Mul(site.input("B"), site.input("A"))
