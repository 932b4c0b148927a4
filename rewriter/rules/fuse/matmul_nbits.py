"""DequantizeLinear of a stored weight -> MatMul or Gemm raised to com.microsoft MatMulNBits.

Weights in blocks are raised wherever MatMulNBits runs; those with one scale per column or for
all, and Gemm, only where the target does not take them (HTP has no stand-alone DequantizeLinear
of them: it would be repeated on the CPU in every call).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.nbits_weights import blocks_of
from rewriter.rules.parts.quantized_weights import BITS
from rewriter.site import Site
from rewriter.tape import Tape


def _pattern(product: str, *, transposed: bool = False) -> Callable[..., Any]:
    def pattern(op: Any, a: Any, x: Any, x_scale: Any) -> Any:
        weight = op.DequantizeLinear(x, x_scale, _allow_other_inputs=True, _outputs=["weight"])
        if transposed:
            weight = op.Transpose(weight, _outputs=["transposed"])
        if product == "Gemm":
            return op.Gemm(a, weight, _allow_other_inputs=True)
        return op.MatMul(a, weight)

    return pattern


def _product(op: Tape, site: Site, a: ir.Value, *, rows: bool) -> ir.Value:
    weight = site.others["weight"]
    kept = weight.node.outputs[0].dtype == a.dtype and weight.input("x_scale").dtype == a.dtype
    site.require(kept, "the scale has another type than the activation")
    site.require(a.dtype != ir.DataType.BFLOAT16, "bfloat16 has no kernel to check it with")
    site.require(site.rank(a, "A") >= 2, "the activation is a vector")
    found = blocks_of(op, weight, rows=rows)
    return op.emit("com.microsoft::MatMulNBits", (a, *found.inputs), found.sizes)[0]


def _require_floats(site: Site) -> None:
    """Refuse a product of integers that another zero point or type brings on the target.

    What remains (zero points of 8-bit codes, blocks) has no other form than floats.
    """
    weight = site.others["weight"]
    kind, quantized = weight.facts.inputs["x"].dtype, weight.facts.activations
    whole = quantized not in {"", "float"} and weight.integer("block_size", 0) == 0
    narrow = BITS.get(kind, 8) < 8 or weight.optional("x_zero_point") is None
    site.require(not (whole and narrow), f"the activation is {quantized}: it stays in integers")


@fuses("MatMul", pattern=_pattern("MatMul"), emits=("com.microsoft::MatMulNBits",), opset=13)
def matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """MatMul(a, DequantizeLinear(W)) as MatMulNBits(a, codes, scales, zero points)."""
    weight = site.others["weight"]
    site.require(weight.integer("block_size", 0) > 0, "the weight is not in blocks")
    quantized = weight.facts.activations not in {"", "float"}
    site.require(not quantized, f"the activation is {weight.facts.activations}")
    a = site.input("A")
    site.require(site.rank(a, "A") >= 3, "the activation has rank 2, which few EPs take")
    return _product(op, site, a, rows=False)


@fuses(
    "MatMul",
    pattern=_pattern("MatMul"),
    emits=("com.microsoft::MatMulNBits",),
    order=1,
    opset=13,
    needed=True,
)
def matmul_nbits_of_columns(op: Tape, site: Site) -> ir.Value:
    """The same of a weight with a scale for all or one per column, and of matrices."""
    _require_floats(site)
    return _product(op, site, site.input("A"), rows=False)


@fuses(
    "MatMul",
    pattern=_pattern("MatMul", transposed=True),
    emits=("com.microsoft::MatMulNBits",),
    order=2,
    opset=13,
    needed=True,
)
def matmul_nbits_of_rows(op: Tape, site: Site) -> ir.Value:
    """MatMul(a, Transpose(DequantizeLinear(W))) of a weight that is stored as (N, K)."""
    perm = site.others["transposed"].attribute("perm")
    site.require(perm in (None, [1, 0], (1, 0)), "the Transpose leaves the weight as it is")
    _require_floats(site)
    return _product(op, site, site.input("A"), rows=True)


@fuses(
    "Gemm",
    pattern=_pattern("Gemm"),
    emits=("com.microsoft::MatMulNBits", "Add", "Mul", "Transpose"),
    opset=13,
    needed=True,
)
def gemm_nbits(op: Tape, site: Site) -> ir.Value:
    """Gemm(a, DequantizeLinear(W), c) as alpha·MatMulNBits(a', codes, scales) + beta·c."""
    _require_floats(site)
    a, c = site.input("A"), site.optional("C")
    if site.integer("transA"):
        a = op.Transpose(a, perm=[1, 0])
    y = _product(op, site, a, rows=bool(site.integer("transB")))
    y = _times(op, y, site.number("alpha"))
    beta = site.number("beta")
    return y if c is None else op.Add(y, _times(op, c, beta))


def _times(op: Tape, x: ir.Value, factor: float) -> ir.Value:
    return x if factor in {1.0} else op.Mul(x, op.const(np.float32(factor), x.dtype, name="factor"))
