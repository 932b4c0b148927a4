"""Gemm and a Conv of points as what is around one product A·W of an activation and a weight.

The caller builds the product, so the weight may be stored in any form.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from rewriter.site import Site
from rewriter.tape import Tape

Product = Callable[[ir.Value], ir.Value]
"""A (..., K) to A·W (..., N)."""


def gemm_around(op: Tape, site: Site, product: Product) -> ir.Value:
    """Gemm as alpha·product(A') + beta·C; ``transB`` is the product's to read."""
    a, c = site.input("A"), site.optional("C")
    if site.integer("transA"):
        a = op.Transpose(a, perm=[1, 0])
    y = _times(op, product(a), site.number("alpha"))
    beta = site.number("beta")
    return y if c is None else op.Add(y, _times(op, c, beta))


def conv_around(op: Tape, site: Site, product: Product) -> ir.Value:
    """A Conv whose kernel is one point as a product over the channels, and its bias.

    Args:
        op: gets the nodes.
        site: the Conv: X (B, K, ...) and W (N, K, 1, ...).
        product: over the last axis.

    Raises:
        Refusal: the kernel is more than a point, or it does not go over every point once.
    """
    x = site.input("X")
    rank = site.rank(x, "X")
    around = range(2, rank)
    kernel = site.shape(site.input("W"), "W")[2:]
    site.require(set(kernel) <= {1}, f"its kernel has more than one point: {list(kernel)}")
    site.ignore("kernel_shape", "dilations")  # which say nothing of one point
    site.require(site.integer("group") == 1, "its channels are in groups")
    site.require(set(site.attribute("strides") or ()) <= {1}, "its strides leave points out")
    site.require(not any(site.attribute("pads") or ()), "it pads")
    mode = site.attribute("auto_pad")
    site.require(mode in {None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}, f"auto_pad={mode}")
    y = product(op.Transpose(x, perm=[0, *around, 1]))
    bias = site.optional("B")
    if bias is not None:
        y = op.Add(y, bias)
    return op.Transpose(y, perm=[0, rank - 1, *range(1, rank - 1)])


def _times(op: Tape, x: ir.Value, factor: float) -> ir.Value:
    return x if factor in {1.0} else op.Mul(x, op.const(np.float32(factor), x.dtype, name="factor"))
