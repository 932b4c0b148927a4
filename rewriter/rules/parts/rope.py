"""Rotary position embedding from tables of cosines and sines."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.facts import static_dims
from rewriter.tape import Tape


def table_rows(op: Tape, table: ir.Value, positions: ir.Value) -> ir.Value:
    """Rows of a (max, R/2) table at positions (B, S), as (B, 1, S, R/2)."""

    def build() -> ir.Value:
        rows = op.Gather(table, positions, axis=0)
        return op.Unsqueeze(rows, op.const(np.array([1], np.int64), name="heads_axis"))

    return op.once(("rows", table, positions), build)


def rotate(op: Tape, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    """Half-split rotation of x (B, H, S, D) by angles (B, 1, S, R/2); the tail D - R passes.

    With x = [a, b, tail]: [a·cos - b·sin, b·cos + a·sin, tail].
    """
    half, size = static_dims(cos)[-1], static_dims(x)[-1]
    tail = size - 2 * half
    sizes = op.const(np.array([half, half] + [tail] * (tail > 0), np.int64), name="halves")
    a, b, *rest = op.emit("Split", (x, sizes), {"axis": -1}, outputs=3 if tail else 2)
    first = op.Sub(op.Mul(a, cos), op.Mul(b, sin))
    second = op.Add(op.Mul(b, cos), op.Mul(a, sin))
    return op.Concat(first, second, *rest, axis=-1)
