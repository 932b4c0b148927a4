"""The sum that SkipLayerNormalization and SkipSimplifiedLayerNormalization normalize."""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.site import Site
from rewriter.tape import Tape


def with_skip(op: Tape, site: Site) -> ir.Value:
    """Input + skip + bias; a skip (S, H) or (1, S, H) is the same for the whole batch.

    Dims need not be fixed; those that are known have to fit.
    """
    x, skip, bias = site.input("input"), site.input("skip"), site.optional("bias")
    shape, other = dims_of(x), dims_of(skip)
    if shape is not None and other is not None:
        pairs = [*zip(reversed(shape), reversed(other), strict=False)]
        fits = len(other) in {len(shape), 2} and len(other) <= len(shape)
        fits = fits and all(a == b or None in {a, b} for a, b in pairs[:2])
        fits = fits and all(a == b or b == 1 or None in {a, b} for a, b in pairs[2:])
        site.require(fits, f"skip {skip.shape} does not fit input {x.shape}")
    total = op.Add(x, skip)
    return total if bias is None else op.Add(total, bias)
