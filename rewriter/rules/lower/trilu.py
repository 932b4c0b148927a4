"""Trilu to a comparison of coordinates and Where.

y[..., i, j] = x[..., i, j] where j - i >= k (upper), or j - i <= k (lower), else 0 (onnx
Operators.md, Trilu 14). Coordinates are compared, so that no mask as large as x is stored.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Trilu", emits=("Add", "And", "Cast", "GreaterOrEqual", "LessOrEqual", "Where"), opset=16)
def kept_where(op: Tape, site: Site) -> ir.Value:
    """Where(j >= i + k, x, 0); of bool, And(j >= i + k, x)."""
    x, given = site.input("input"), site.optional("k")
    height, width = site.shape(x, "input")[-2:]
    stored = constant(given)
    k = 0 if stored is None else int(stored.numpy().reshape(-1)[0])
    moved = given if stored is None else None
    upper = bool(site.integer("upper"))

    def mask() -> ir.Value:
        rows = op.const(np.arange(height, dtype=np.int32)[:, None] + np.int32(k), name="rows")
        rows = rows if moved is None else op.Add(rows, op.Cast(moved, to=ir.DataType.INT32))
        columns = op.const(np.arange(width, dtype=np.int32)[None], name="columns")
        compare = op.GreaterOrEqual if upper else op.LessOrEqual
        return compare(columns, rows)

    kept = op.once(("triangle", height, width, k, moved, upper), mask)
    if x.dtype == ir.DataType.BOOL:
        return op.And(kept, x)
    return op.Where(kept, x, op.const(np.int8(0), x.dtype, name="zero"))
