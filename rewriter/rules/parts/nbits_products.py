"""The product of an activation and a weight behind DequantizeLinear, as one MatMulNBits.

For fusions whose pattern calls the DequantizeLinear ``weight``.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rules.parts.nbits_weights import blocks_of
from rewriter.rules.parts.quantized_weights import BITS
from rewriter.site import Site
from rewriter.tape import Tape


def nbits_product(op: Tape, site: Site, a: ir.Value, *, rows: bool) -> ir.Value:
    """A (..., K) times the weight, (..., N).

    Args:
        op: gets the nodes.
        site: the product.
        a: the activation, over its last axis.
        rows: the weight is stored as (N, K), dims of 1 behind, and not as (K, N).

    Raises:
        Refusal: there is no such form, with the reason.
    """
    weight = site.others["weight"]
    kept = weight.node.outputs[0].dtype == a.dtype and weight.input("x_scale").dtype == a.dtype
    site.require(kept, "the scale has another type than the activation")
    site.require(a.dtype != ir.DataType.BFLOAT16, "bfloat16 has no kernel to check it with")
    site.require(site.rank(a, "A") >= 2, "the activation is a vector")
    found = blocks_of(op, weight, rows=rows)
    return op.emit("com.microsoft::MatMulNBits", (a, *found.inputs), found.sizes)[0]


def require_floats(site: Site) -> None:
    """Refuse a product of integers that another zero point or type brings on the target.

    What remains (zero points of 8-bit codes, for unsigned ones also that of 0, and blocks) has no
    other form than floats.
    """
    weight = site.others["weight"]
    kind, quantized = weight.facts.inputs["x"].dtype, weight.facts.activations
    whole = quantized not in {"", "float"} and weight.integer("block_size", 0) == 0
    absent = weight.optional("x_zero_point") is None
    narrow = BITS.get(kind, 8) < 8 or (absent and kind.startswith("int"))
    site.require(not (whole and narrow), f"the activation is {quantized}: it stays in integers")
