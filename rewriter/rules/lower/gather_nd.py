"""GatherND to Gather.

With data seen as (d_0 · ... · d_{k-1}, rest), element (i_0, ..., i_{k-1}) is row
i_0·s_0 + ... + i_{k-1}·s_{k-1}, where s are the strides of the k dims; batch dims add the
coordinates of the batch (onnx Operators.md, GatherND 13). Gather takes types that GatherND does
not on NPUs: torch.onnx reads boolean padding masks with GatherND.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape

_NARROW = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


@lowers(
    "GatherND",
    emits=("Add", "Cast", "Gather", "Mod", "Mul", "ReduceSum", "Reshape"),
    opset=13,
)
def gather_of_rows(op: Tape, site: Site) -> ir.Value:
    """Gather(Reshape(data), ReduceSum(indices · strides)); 8-bit data by way of int32."""
    data, indices = site.input("data"), site.input("indices")
    shape, picks = site.shape(data, "data"), site.shape(indices, "indices")
    batch = site.integer("batch_dims")
    dims = shape[: batch + picks[-1]]
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]

    starts = np.zeros((1,) * len(picks[:-1]), np.int64)
    for axis in range(batch):
        coordinate = np.arange(dims[axis]) * strides[axis]
        starts = starts + coordinate.reshape([-1 if i == axis else 1 for i in range(starts.ndim)])
    sizes, steps = np.array(dims[batch:], np.int64), np.array(strides[batch:], np.int64)
    rows = _rows(op, site, indices, sizes, steps, starts)

    flat = (math.prod(dims), *shape[len(dims) :])
    wide = op.Cast(data, to=ir.DataType.INT32) if data.dtype in _NARROW else data
    found = op.Gather(reshaped(op, wide, flat, "flat"), rows, axis=0)
    return found if found.dtype == data.dtype else op.Cast(found, to=data.dtype)


def _rows(
    op: Tape,
    site: Site,
    indices: ir.Value,
    sizes: np.ndarray,
    steps: np.ndarray,
    starts: np.ndarray,
) -> ir.Value:
    """Rows of the flat data; Mod turns indices from the end into those from the start."""
    if constant(indices) is not None:
        known = site.constant(indices, "indices") % sizes
        return op.const((known * steps).sum(-1) + starts, ir.DataType.INT64, name="rows")
    positive = op.Mod(indices, op.const(sizes, name="sizes"))
    parts = op.Mul(positive, op.const(steps, name="strides"))
    rows = op.ReduceSum(parts, op.const(np.array([-1], np.int64), name="last_axis"), keepdims=0)
    return op.Add(rows, op.const(starts, name="batch_starts")) if starts.any() else rows
