"""com.microsoft FusedMatMul and TransposeMatMul, its older name, to transpositions and a product.

y = alpha · A' · B'. A' is A with its last two axes swapped if ``transA``, after its first axis was
moved to the last but one if ``transBatchA``; so is B' (ORT contrib schema).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape

_EMITS = ("MatMul", "Mul", "Transpose")


@lowers("com.microsoft::FusedMatMul", emits=_EMITS, opset=13)
def scaled_product(op: Tape, site: Site) -> ir.Value:
    """MatMul(alpha · Transpose(A), Transpose(B)); scaling the factor keeps products small."""
    alpha = site.number("alpha")
    flipped = site.integer("transA") and site.rank(site.input("A"), "A") > 1
    site.require(
        not flipped or site.rank(site.input("B"), "B") > 1,
        "transA=1 with a vector B: ONNX Runtime's CPU reads A untransposed (measured on 1.32)",
    )
    a, b = (_transposed(op, site, name) for name in ("A", "B"))
    if alpha not in {1.0}:
        a = op.Mul(a, op.const(np.float32(alpha), a.dtype, name="alpha"))
    return op.MatMul(a, b)


def _transposed(op: Tape, site: Site, name: str) -> ir.Value:
    value = site.input(name)
    swap, batch = site.integer(f"trans{name}"), site.integer(f"transBatch{name}", 0)
    rank = site.rank(value, name)
    site.require(not batch or rank > 2, f"transBatch{name}=1 at rank {rank} is not legal")
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, rank - 1]
    if swap and rank > 1:  # ONNX Runtime lets transA of a vector mean nothing
        order[-2:] = reversed(order[-2:])
    return value if order == sorted(order) else op.Transpose(value, perm=order)


lowers(
    "com.microsoft::TransposeMatMul", emits=_EMITS, opset=13, name="scaled_product_of_transposed"
)(scaled_product)
