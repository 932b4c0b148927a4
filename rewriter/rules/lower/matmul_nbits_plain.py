"""com.microsoft MatMulNBits in the plain form that every reader of it takes.

That is an activation of rank 3, a full last block, packed zero points or none, no g_idx and no
bias; what is given beyond becomes ops around it (:mod:`rewriter.rules.parts.nbits`).
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import nbits
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("com.microsoft::MatMulNBits", "Add", "Concat", "MatMul", "ReduceSum", "Reshape"),
    order=0,
    opset=13,
)
def plain_matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(A with zeros behind, codes, scales) + sums of A·m + bias, at rank 3."""
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    prepacked = site.integer("weight_prepacked")
    site.require(prepacked == 0, "prepacked weights have their own layout")
    nbits.require_trivial_groups(site, k, block)
    a, width = site.input("A"), -(-k // block) * block
    dims = site.shape(a, "A")
    points, bias = nbits.float_zero_points(site), site.optional("bias")
    plain = len(dims) == 3 and k == width and points is None and bias is None
    site.require(not plain or site.optional("g_idx") is not None, "it has the plain form")

    if len(dims) != 3:
        flat = np.array([1, math.prod(dims[:-1]), k], np.int64)
        a = op.Reshape(a, op.const(flat, name="rows_shape"))
    a = nbits.filled(op, site, a, width)
    y = op.ms(
        "MatMulNBits",
        a,
        site.input("B"),
        site.input("scales"),
        *([] if points is not None else [site.optional("zero_points")]),
        K=width,
        N=n,
        bits=bits,
        block_size=block,
        accuracy_level=site.attribute("accuracy_level"),
    )
    if points is not None:
        y = op.Add(y, nbits.moved(op, site, a, points))
    if bias is not None:
        y = op.Add(y, bias)
    if len(dims) != 3:
        y = op.Reshape(y, op.const(np.array([*dims[:-1], n], np.int64), name="shape"))
    return y
