"""GELU and its kin: Gelu, BiasGelu, FastGelu, QuickGelu, Swish.

gelu(x) = x/2 · (1 + erf(x / √2)); by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)));
swish(x) = x · sigmoid(alpha·x), which com.microsoft calls QuickGelu (onnx Operators.md, Gelu 20
and Swish 24; ORT contrib schemas). A bias is added to x first.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import number
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("com.microsoft::BiasGelu", emits=("Add", "Gelu"), opset=20)
def add_and_gelu(op: Tape, site: Site) -> ir.Value:
    """Gelu(A + B)."""
    return op.Gelu(op.Add(site.input("A"), site.input("B")))


@lowers("com.microsoft::FastGelu", emits=("Add", "Gelu"), opset=20)
def gelu_by_tanh(op: Tape, site: Site) -> ir.Value:
    """Gelu(X + bias, approximate=tanh)."""
    x, bias = site.input("X"), site.optional("bias")
    return op.Gelu(x if bias is None else op.Add(x, bias), approximate="tanh")


@lowers("com.microsoft::Gelu", emits=("Gelu",), opset=20)
def standard_gelu(op: Tape, site: Site) -> ir.Value:
    """Gelu(X) of ai.onnx."""
    return op.Gelu(site.input("X"))


@lowers("Gelu", emits=("Add", "Erf", "Mul", "Tanh"), opset=20)
def gelu_primitives(op: Tape, site: Site) -> ir.Value:
    """X/2 · (1 + Erf(x / √2)), or x/2 · (1 + Tanh(x · (√(2/π) + 0.044715·√(2/π)·x²)))."""
    x = site.input("X")
    if site.attribute("approximate") == "tanh":
        slope = math.sqrt(2 / math.pi)
        factor = op.Add(_times(op, op.Mul(x, x), 0.044715 * slope), number(op, x, slope))
        curve = op.Tanh(op.Mul(x, factor))
    else:
        curve = op.Erf(_times(op, x, math.sqrt(0.5)))
    return op.Mul(_times(op, x, 0.5), op.Add(curve, number(op, x, 1)))


@lowers("com.microsoft::QuickGelu", emits=("Mul", "Sigmoid"), opset=7)
def quick_gelu_primitives(op: Tape, site: Site) -> ir.Value:
    """X · Sigmoid(alpha·X)."""
    return _swish(op, site.input("X"), site.number("alpha"))


@lowers("Swish", emits=("Mul", "Sigmoid"), opset=24)
def swish_primitives(op: Tape, site: Site) -> ir.Value:
    """X · Sigmoid(alpha·X)."""
    return _swish(op, site.input("X"), site.number("alpha"))


def _swish(op: Tape, x: ir.Value, alpha: float) -> ir.Value:
    return op.Mul(x, op.Sigmoid(x if alpha in {1.0} else _times(op, x, alpha)))


def _times(op: Tape, x: ir.Value, factor: float) -> ir.Value:
    return op.Mul(x, number(op, x, factor))
