"""DequantizeLinear of a stored weight -> MatMul or Gemm raised to com.microsoft MatMulNBits.

Weights in blocks are raised wherever MatMulNBits runs; those with one scale per column or for
all, and Gemm, only where the target does not take them (HTP has no stand-alone DequantizeLinear
of them: it would be repeated on the CPU in every call).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.nbits_products import nbits_product, require_floats
from rewriter.rules.parts.products import gemm_around
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


@fuses("MatMul", pattern=_pattern("MatMul"), emits=("com.microsoft::MatMulNBits",), opset=13)
def matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """MatMul(a, DequantizeLinear(W)) as MatMulNBits(a, codes, scales, zero points)."""
    weight = site.others["weight"]
    site.require(weight.integer("block_size", 0) > 0, "the weight is not in blocks")
    quantized = weight.facts.activations not in {"", "float"}
    site.require(not quantized, f"the activation is {weight.facts.activations}")
    a = site.input("A")
    site.require(site.rank(a, "A") >= 3, "the activation has rank 2, which few EPs take")
    return nbits_product(op, site, a, rows=False)


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
    require_floats(site)
    return nbits_product(op, site, site.input("A"), rows=False)


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
    require_floats(site)
    return nbits_product(op, site, site.input("A"), rows=True)


@fuses(
    "Gemm",
    pattern=_pattern("Gemm"),
    emits=("com.microsoft::MatMulNBits", "Add", "Mul", "Transpose"),
    opset=13,
    needed=True,
)
def gemm_nbits(op: Tape, site: Site) -> ir.Value:
    """Gemm(a, DequantizeLinear(W), c) as alpha·MatMulNBits(a', codes, scales) + beta·c."""
    require_floats(site)
    rows = bool(site.integer("transB"))
    return gemm_around(op, site, lambda a: nbits_product(op, site, a, rows=rows))
