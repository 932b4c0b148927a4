"""com.microsoft BiasAdd and BiasSplitGelu, of diffusion models, to additions and Gelu.

BiasAdd: y = x + bias + skip. BiasSplitGelu: with x + bias split into halves a and b along the last
axis, y = a · gelu(b) (ORT contrib schemas). ONNX Runtime's CPU has a kernel for neither.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("com.microsoft::BiasAdd", emits=("Add",), opset=7)
def two_additions(op: Tape, site: Site) -> ir.Value:
    """X + bias + skip."""
    return op.Add(op.Add(site.input("X"), site.input("bias")), site.input("skip"))


@lowers("com.microsoft::BiasSplitGelu", emits=("Add", "Gelu", "Mul", "Split"), opset=20)
def half_times_gelu_of_half(op: Tape, site: Site) -> ir.Value:
    """A · Gelu(b), with [a, b] = X + bias."""
    x = site.input("X")
    width = site.shape(x, "X")[-1]
    site.require(width % 2 == 0, f"{width} features do not split into halves")
    total = op.Add(x, site.input("bias"))
    halves = op.const(np.array([width // 2] * 2, np.int64), name="halves")
    first, second = op.emit("Split", (total, halves), {"axis": -1}, outputs=2)
    return op.Mul(first, op.Gelu(second))
