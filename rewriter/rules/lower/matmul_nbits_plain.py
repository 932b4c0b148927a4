"""com.microsoft MatMulNBits in the plain form that every reader of it takes.

That is an activation of rank 3, a full last block, packed zero points or none, no g_idx and no
bias; what is given beyond becomes ops around it (:mod:`rewriter.rules.parts.nbits`).
"""

from __future__ import annotations

import math

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import nbits
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape

_NBITS = "com.microsoft::MatMulNBits"
_AROUND = (_NBITS, "Add", "Concat", "Gather", "MatMul", "ReduceSum", "Reshape")


@lowers(_NBITS, emits=_AROUND, order=0, opset=13)
def plain_matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(A with zeros behind, codes, scales) + sums of A·m + bias, at rank 3."""
    k, _, block, _ = nbits.sizes(site)
    full = k % block == 0
    points, bias = nbits.float_zero_points(site), site.optional("bias")
    plain = site.rank(site.input("A"), "A") == 3 and full and points is None and bias is None
    site.require(not plain or site.optional("g_idx") is not None, "it has the plain form")
    nbits.packed_zero_points(site)
    return _plain(op, site, points)


@lowers(_NBITS, emits=_AROUND, form="zero_points dtype uint8", order=1, opset=13)
def zero_points_beside(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits around the middle code + sums of A·s·(middle - z), for readers of no other."""
    nbits.sizes(site)
    return _plain(op, site, nbits.packed_zero_points(site))


def _plain(op: Tape, site: Site, points: ir.Value | None) -> ir.Value:
    k, n, block, bits = nbits.sizes(site)
    width = -(-k // block) * block
    a, codes = nbits.in_order(op, site)
    dims = site.shape(a, "A")
    if len(dims) != 3:
        a = reshaped(op, a, (1, math.prod(dims[:-1]), k), "rows_shape")
    a = nbits.filled(op, site, a, width)
    y = op.ms(
        "MatMulNBits",
        a,
        codes,
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
    bias = site.optional("bias")
    if bias is not None:
        y = op.Add(y, bias)
    if len(dims) != 3:
        y = reshaped(op, y, (*dims[:-1], n))
    return y
