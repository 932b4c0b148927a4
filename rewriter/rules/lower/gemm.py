"""Gemm with factors to one without.

y = alpha · A' · B' + beta · C (onnx Operators.md, Gemm 13), which is the Gemm of alpha · A and
beta · C with factors of 1: some NPUs take only that.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Gemm", emits=("Gemm", "Mul"), opset=13)
def factors_outside(op: Tape, site: Site) -> ir.Value:
    """Gemm(alpha · A, B, beta · C)."""
    a, c = site.input("A"), site.optional("C")
    assert a.dtype is not None
    site.require(a.dtype.is_floating_point(), f"factors of {a.dtype} matrices are not handled")
    alpha, beta = site.number("alpha"), site.number("beta")
    site.require({alpha, beta} != {1.0}, "alpha and beta are 1 already")
    if alpha not in {1.0}:
        a = op.Mul(a, op.const(np.float32(alpha), a.dtype, name="alpha"))
    if c is not None and beta not in {1.0}:
        factor = op.const(np.float32(beta), c.dtype, name="beta")
        stored = constant(c)
        c = op.Mul(c, factor) if stored is None else _scaled(op, stored, beta)
    return op.Gemm(
        a, site.input("B"), c, transA=site.integer("transA"), transB=site.integer("transB")
    )


def _scaled(op: Tape, bias: ir.TensorProtocol, beta: float) -> ir.Value:
    array = bias.numpy()
    return op.const(array * np.asarray(beta, array.dtype), bias.dtype, name="scaled_bias")
