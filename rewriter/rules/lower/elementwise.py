"""Elementwise ops of rank 5 at rank 4: the first two axes become one, and come back after.

What an op does to each element alone does not depend on the shape.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape

OPS = (
    "Atan", "Ceil", "Cos", "Elu", "Floor", "HardSigmoid", "HardSwish", "Log", "Neg", "Not",
    "Selu", "Sign", "Sin", "Softplus", "Sqrt", "Tanh",
)  # fmt: skip


def at_rank_4(op: Tape, site: Site) -> ir.Value:
    """Reshape(f(Reshape(x)))."""
    x = site.input(next(iter(site.facts.inputs)))
    first, second, *rest = shape = site.shape(x, "the input")
    attributes = {name: site.attribute(name) for name in site.facts.attributes}
    small = reshaped(op, x, (first * second, *rest))
    y = op.emit(site.facts.op, [small], attributes)[0]
    return reshaped(op, y, shape)


for _op in OPS:
    lowers(_op, emits=("Reshape", _op), form="rank 5", opset=5, name=f"{_op.lower()}_at_rank_4")(
        at_rank_4
    )
