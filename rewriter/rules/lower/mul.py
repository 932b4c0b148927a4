"""Mul with its operands the other way round, where an EP minds their order.

HTP fails to finalize w · n for a written-out RMS norm n and takes n · w (lowering.md, trap 3).
Where the norm can be raised to one op, the fusion has done so before.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Mul", emits=("Mul",), form="weight before norm", opset=7)
def weight_last(op: Tape, site: Site) -> ir.Value:
    """The product n · w for w · n."""
    return op.Mul(site.input("B"), site.input("A"))
