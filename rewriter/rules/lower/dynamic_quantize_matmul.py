"""com.microsoft DynamicQuantizeMatMul and MatMulIntegerToFloat, products of integers.

q, s, z = DynamicQuantizeLinear(A); y = MatMulInteger(q, B, z, b_zero_point)·(s·b_scale) + bias;
MatMulIntegerToFloat starts at q (ORT contrib schema). Rounding A is a part of the function and
stays. HTP has no product of integers, so a stored B becomes a MatMulNBits of 8 bits against
s·(q - z): the same products, summed as floats.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.nbits_weights import blocks_of_integers
from rewriter.site import Site
from rewriter.tape import Tape

_NBITS = "com.microsoft::MatMulNBits"
_FLOATS = (_NBITS, "Add", "DequantizeLinear")
_INTEGERS = ("Add", "Cast", "MatMulInteger", "Mul")
_ROUNDED = ("DynamicQuantizeLinear",)

Rounded = tuple[ir.Value, ir.Value, "ir.Value | None"]
"""Codes of A, their scale, their zero point."""


def _dynamic(op: Tape, site: Site) -> Rounded:
    q, scale, point = op.emit("DynamicQuantizeLinear", (site.input("A"),), outputs=3)
    return q, scale, point


def _static(site: Site) -> Rounded:
    scale = site.input("a_scale")
    single = site.shape(scale, "a_scale") in {(), (1,)}
    site.require(single, "a_scale with a row of scales is not handled")
    return site.input("A"), scale, site.optional("a_zero_point")


def _as_floats(op: Tape, site: Site, rounded: Rounded) -> ir.Value:
    found = blocks_of_integers(
        op, site, site.input("B"), site.input("b_scale"), site.optional("b_zero_point")
    )
    q, scale, point = rounded
    a = op.DequantizeLinear(q, scale, *([] if point is None else [point]))
    y = op.emit(_NBITS, (a, *found.inputs), found.sizes)[0]
    bias = site.optional("bias")
    return y if bias is None else op.Add(y, bias)


def _as_integers(op: Tape, site: Site, rounded: Rounded) -> ir.Value:
    q, scale, point = rounded
    inputs = [q, site.input("B"), point, site.optional("b_zero_point")]
    while inputs[-1] is None:
        inputs.pop()
    product = op.Cast(op.emit("MatMulInteger", inputs)[0], to=scale.dtype)
    y = op.Mul(product, op.Mul(scale, site.input("b_scale")))
    bias = site.optional("bias")
    return y if bias is None else op.Add(y, bias)


@lowers("com.microsoft::DynamicQuantizeMatMul", emits=_FLOATS + _ROUNDED, opset=13)
def float_product_of_rounded(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits of A as DynamicQuantizeLinear rounds it."""
    return _as_floats(op, site, _dynamic(op, site))


@lowers("com.microsoft::DynamicQuantizeMatMul", emits=_INTEGERS + _ROUNDED, order=1, opset=13)
def integer_product_of_rounded(op: Tape, site: Site) -> ir.Value:
    """MatMulInteger of A as DynamicQuantizeLinear rounds it, scaled."""
    return _as_integers(op, site, _dynamic(op, site))


@lowers("com.microsoft::MatMulIntegerToFloat", emits=_FLOATS, opset=13)
def float_product(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits of the dequantized A."""
    return _as_floats(op, site, _static(site))


@lowers("com.microsoft::MatMulIntegerToFloat", emits=_INTEGERS, order=1, opset=13)
def integer_product(op: Tape, site: Site) -> ir.Value:
    """MatMulInteger of A, scaled."""
    return _as_integers(op, site, _static(site))
