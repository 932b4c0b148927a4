"""A guard against NaN behind a softmax that cannot give any, taken away.

torch.onnx writes Where(IsNaN(p), 0, p) behind the softmax of every attention with a bool mask, for
rows that the mask hides whole. Where it hides them by a finite number (the lowest float), or there
is no mask at all, such a row has weights like any other, and nothing is NaN.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.mask_numbers import numbers_below
from rewriter.rules.parts.patterns import any_of, either, factor, number, scaled, site_of
from rewriter.site import Site
from rewriter.tape import Tape


def _guarded(op: Any) -> Any:
    from onnxscript.rewriter.pattern import Var

    scores = scaled(op, op.MatMul(Var("a"), Var("b")), "factor")
    masked = any_of(either(op.Add, scores, Var("mask")), scores)
    weights = op.Softmax(masked, _outputs=["weights"])
    return op.Where(op.IsNaN(weights), number("number"), weights)


def _pattern(op: Any) -> Any:
    return _guarded(op)  # elsewhere: the other ops of it are no forms that the rule takes away


@fuses("Where", pattern=_pattern, emits=(), order=20)
def softmax_guard(op: Tape, site: Site) -> ir.Value:
    """Where(IsNaN(p), z, p) as p, for p = softmax of products and a finite mask."""
    del op
    weights = site.bound["weights"]
    site_of(site, weights).ignore("axis")
    site.require(weights.dtype == ir.DataType.FLOAT, f"products of {weights.dtype} may overflow")
    if "mask" in site.bound:
        hiding = numbers_below(site.bound["mask"])
        finite = hiding is not None and all(map(math.isfinite, hiding))
        site.require(finite, "the mask may hide a row by -inf")
    site.require(math.isfinite(factor(site, "factor")), "the products are scaled by no number")
    return weights
