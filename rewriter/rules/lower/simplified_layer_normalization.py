"""SimplifiedLayerNormalization (ONNX Runtime's RMS norm) to the standard.

y = x / sqrt(mean(x²) + epsilon) · scale over the axes from ``axis`` on, computed in
``stash_type`` (1: float32). RMSNormalization is the same op since opset 23; below that the
primitives are written out, and they also give the second output, 1 / sqrt(mean(x²) + epsilon).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import norms
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "SimplifiedLayerNormalization",
    emits=("SimplifiedLayerNormalization", "Reshape"),
    order=-1,
    opset=13,
    free=True,
)
def simplified_norm_of_rows(op: Tape, site: Site) -> ir.Value:
    """The same norm over the last axis of rank 3 (D32: at rank 4 a device was wrong)."""
    return norms.rms_of_rows(op, site)


@lowers("SimplifiedLayerNormalization", emits=("RMSNormalization",), order=0)
def rms_normalization(op: Tape, site: Site) -> ir.Value:
    """RMSNormalization(x, scale), where the model's opset has it."""
    site.require(site.opset >= 23, f"RMSNormalization needs opset 23, the model has {site.opset}")
    return op.RMSNormalization(
        site.input("X"),
        site.input("scale"),
        axis=site.integer("axis"),
        epsilon=site.number("epsilon"),
        stash_type=site.integer("stash_type"),
    )


@lowers(
    "SimplifiedLayerNormalization",
    emits=("Add", "Cast", "Div", "Mul", "ReduceMean", "Reciprocal", "Sqrt"),
    order=1,
    opset=18,
)
def rms_primitives(op: Tape, site: Site) -> Sequence[ir.Value]:
    """X / Sqrt(ReduceMean(x·x) + epsilon) · scale, the weight second: HTP fails on Mul(w, n)."""
    x, scale = site.input("X"), site.input("scale")
    rank = site.rank(x, "X")
    axis = site.integer("axis") % rank
    stash = ir.DataType(site.integer("stash_type"))
    assert x.dtype is not None
    wide = x if x.dtype == stash else op.Cast(x, to=stash)
    axes = op.const(np.arange(axis, rank), ir.DataType.INT64, name="axes")
    mean = op.ReduceMean(op.Mul(wide, wide), axes, keepdims=1)
    epsilon = op.const(np.float32(site.number("epsilon")), stash, name="epsilon")
    root = op.Sqrt(op.Add(mean, epsilon))
    normed = op.Div(wide, root)
    if x.dtype != stash:
        normed = op.Cast(normed, to=x.dtype)
    y = op.Mul(normed, scale)
    return (y, op.Reciprocal(root)) if site.wants("inv_std_var") else (y,)
