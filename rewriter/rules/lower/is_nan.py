"""IsNaN of what cannot be infinite.

NaN is the only number that differs from itself. HTP makes NaN of every float32 beyond 65504 when
it converts it to fp16, infinities included, before any op sees it: IsNaN and x != x alike then
say yes (measured on 2.7.0). So x != x stands for IsNaN only where x is known to be small or NaN.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import op_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape

_BOUNDED = frozenset({"Cos", "HardSigmoid", "Sigmoid", "Sin", "Softmax", "Softsign", "Tanh"})


@lowers("IsNaN", emits=("Equal", "Not"), opset=11)
def differs_from_itself(op: Tape, site: Site) -> ir.Value:
    """Not(Equal(x, x)) for x from Softmax and the like, which torch guards that way."""
    x = site.input("X")
    producer = x.producer()
    site.require(
        producer is not None and op_of(producer) in _BOUNDED,
        "x may be infinite, and an NPU that computes in fp16 makes NaN of it before it is asked",
    )
    return op.Not(op.Equal(x, x))
