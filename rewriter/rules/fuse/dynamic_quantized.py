"""A product of dynamically quantized integers, as ORT's quantizer writes it, raised to one op.

Cast(MatMulInteger(q, W, z, w_zero_point)) · (s · w_scale) of a stored W, where q, s, z come from
DynamicQuantizeLinear, is MatMulNBits of 8 bits against s·(q - z). Only where the target has no
product of integers, as HTP: elsewhere the integers are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.nbits_weights import blocks_of_integers
from rewriter.site import Site
from rewriter.tape import Tape

_EMITS = ("com.microsoft::MatMulNBits", "DequantizeLinear")


def _pattern(*, product_first: bool) -> Callable[..., Any]:
    def pattern(op: Any, q: Any, w: Any, z: Any, one: Any, other: Any) -> Any:
        product = op.MatMulInteger(q, w, z, _allow_other_inputs=True, _outputs=["product"])
        number = op.Cast(product, _outputs=["number"])
        scales = op.Mul(one, other)
        return op.Mul(number, scales) if product_first else op.Mul(scales, number)

    return pattern


def _raise(op: Tape, site: Site) -> ir.Value:
    product, number = site.others["product"], site.others["number"]
    q, z, scale, w_scale = (site.bound[name] for name in ("q", "z", "one", "other"))
    if scale.producer() is not q.producer():
        scale, w_scale = w_scale, scale
    same = scale.producer() is q.producer() is z.producer()
    above = q.producer()
    dynamic = above is not None and above.op_type == "DynamicQuantizeLinear"
    site.require(same and dynamic, "the codes and the scale are of no one DynamicQuantizeLinear")
    site.require(number.integer("to") == scale.dtype, "the product is cast to another type")
    number.ignore("saturate", "round_mode")  # of casts to types of 8 bits
    found = blocks_of_integers(op, site, site.bound["w"], w_scale, product.optional("b_zero_point"))
    a = op.DequantizeLinear(q, scale, z)
    return op.emit("com.microsoft::MatMulNBits", (a, *found.inputs), found.sizes)[0]


@fuses("Mul", pattern=_pattern(product_first=True), emits=_EMITS, order=2, opset=13, needed=True)
def float_product_of_integers(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(DequantizeLinear(q, s, z), W)."""
    return _raise(op, site)


@fuses("Mul", pattern=_pattern(product_first=False), emits=_EMITS, order=3, opset=13, needed=True)
def float_product_of_integers_last(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(DequantizeLinear(q, s, z), W)."""
    return _raise(op, site)
