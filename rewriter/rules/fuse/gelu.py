"""A GELU that is written out with Erf, raised to Gelu.

x/2 · (1 + erf(x / √2)) is what exporters write below opset 20, where ai.onnx has no Gelu yet (it
becomes that of com.microsoft then): a product of x, 1/2 and a sum, in any order. HTP has Gelu and
no Erf. It is raised for Erf alone: with Tanh every part of it is an op of HTP.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.site import Site
from rewriter.tape import Tape

_FP16 = 1e-3
"""To this the constants of a float16 model are what they stand for."""


def _pattern(outer: str, *, first: bool) -> Callable[..., Any]:
    """The product with one of its three parts multiplied last, as first or second operand."""

    def pattern(op: Any, x: Any) -> Any:
        from onnxscript.rewriter.pattern import Constant, OrValue

        def either(kind: Any, a: Any, b: Any) -> Any:
            return OrValue([kind(a, b), kind(b, a)])

        root, factor, half, one = (
            Constant(value, rel_tol=_FP16) for value in (math.sqrt(2), math.sqrt(0.5), 0.5, 1.0)
        )
        scaled = OrValue([op.Div(x, root), op.Mul(x, factor), op.Mul(factor, x)])
        parts = {"x": x, "half": half, "sum": either(op.Add, op.Erf(scaled), one)}
        last = parts.pop(outer)
        inner = either(op.Mul, *parts.values())
        return op.Mul(last, inner) if first else op.Mul(inner, last)

    return pattern


def _gelu(op: Tape, site: Site) -> ir.Value:
    """X/2 · (1 + Erf(x / √2)) as Gelu(x)."""
    x = site.bound["x"]
    site.require(x.shape == site.node.outputs[0].shape, "a constant has more dims than x")
    for node in (site, *site.others.values()):
        node.ignore("A", "B")  # the pattern has them, numbers included
    return op.Gelu(x) if site.opset >= 20 else op.ms("Gelu", x)


for _order, _outer in enumerate(("x", "half", "sum")):
    for _first in (True, False):
        fuses(
            "Mul",
            pattern=_pattern(_outer, first=_first),
            emits=("Gelu", "com.microsoft::Gelu"),
            order=10 + 2 * _order + _first,
            name=f"gelu_of_erf_{_outer}_{'first' if _first else 'last'}",
        )(_gelu)
