"""LayerNormalization to the form that an NPU takes, or to primitives.

y = (x - m) / sqrt(v + epsilon) · scale + B, where m and v are mean and variance over the axes
from ``axis`` on, computed in ``stash_type``; the second output is m, the third is
1 / sqrt(v + epsilon) (onnx Operators.md, LayerNormalization 17).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import norms
from rewriter.site import Site
from rewriter.tape import Tape

_STATISTICS = ("Add", "Cast", "Mul", "ReduceMean", "Reciprocal", "Sqrt", "Sub")


@dataclass(frozen=True, slots=True)
class _Norm:
    """Attributes of a node, its axis counted from the front."""

    x: ir.Value
    rank: int
    axis: int
    epsilon: float
    stash: ir.DataType

    @classmethod
    def of(cls, site: Site) -> _Norm:
        x = site.input("X")
        rank = site.rank(x, "X")
        stash = ir.DataType(site.integer("stash_type"))
        return cls(x, rank, site.integer("axis") % rank, site.number("epsilon"), stash)

    def deviation(self, op: Tape) -> tuple[ir.Value, ir.Value, ir.Value]:
        return norms.deviation(op, self.x, self.rank, self.axis, self.epsilon, self.stash)


@lowers(
    "LayerNormalization",
    emits=("LayerNormalization", "Reshape", *_STATISTICS),
    order=0,
    opset=18,
)
def norm_of_rows(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """LayerNormalization with one output over the last axis of rank 3; m and v beside it."""
    norm = _Norm.of(site)
    more = site.wants("Mean") or site.wants("InvStdDev")
    flat = norms.is_flat(norm.rank, norm.axis)
    site.require(more or not flat, "it has one output, over the last axis, at rank 3 or less")
    shape, axis = site.shape(norm.x, "X"), norm.axis
    scale = norms.weight_row(op, site, site.input("Scale"), shape, axis, "Scale")
    bias = site.optional("B")
    if bias is not None:
        bias = norms.weight_row(op, site, bias, shape, axis, "B")
    y = op.LayerNormalization(
        norms.as_rows(op, norm.x, shape, axis),
        scale,
        bias,
        axis=-1,
        epsilon=norm.epsilon,
        stash_type=norm.stash,
    )
    mean, _, inverse = norm.deviation(op) if more else (None, None, None)
    return norms.as_before(op, y, shape, axis), mean, inverse


@lowers("LayerNormalization", emits=_STATISTICS, order=1, opset=18)
def norm_primitives(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """(x - m) · (1 / Sqrt(ReduceMean((x - m)²) + epsilon)) · scale + B."""
    norm = _Norm.of(site)
    mean, centred, inverse = norm.deviation(op)
    normed = op.Mul(centred, inverse)
    if normed.dtype != norm.x.dtype:
        normed = op.Cast(normed, to=norm.x.dtype)
    y = op.Mul(normed, site.input("Scale"))
    bias = site.optional("B")
    return y if bias is None else op.Add(y, bias), mean, inverse
