"""Mish to its parts.

mish(x) = x · tanh(softplus(x)) (onnx Operators.md, Mish 22). ONNX Runtime inlines the op as a
function only after an EP took the rest, which tears the graph into partitions.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Mish", emits=("Mul", "Softplus", "Tanh"), opset=18)
def mish_primitives(op: Tape, site: Site) -> ir.Value:
    """X · Tanh(Softplus(X))."""
    x = site.input("X")
    return op.Mul(x, op.Tanh(op.Softplus(x)))
