"""Rotary position embedding from tables of cosines and sines.

A pair (a, b) of features is rotated by an angle to (a·cos - b·sin, b·cos + a·sin). The pairs are
those of the two halves of the rotated part R, or neighbours if interleaved (D11).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, op_of, static_dims
from rewriter.rules.parts.shorthand import reshaped
from rewriter.schemas import schema_of
from rewriter.tape import Tape

HEADS_SECOND, HEADS_THIRD = 1, 2
"""The axis that angles (B, S, R/2) need for x (B, H, S, D), and for x (B, S, H, D)."""

_ROTATIONS = frozenset({"RotaryEmbedding", "com.microsoft::RotaryEmbedding"})


def table_rows(
    op: Tape, table: ir.Value, positions: ir.Value, axis: int = HEADS_SECOND
) -> ir.Value:
    """Rows of a (max, R/2) table at positions (B, S), as (B, 1, S, R/2).

    Rows at constant positions are a constant where that makes the file no longer.
    """

    def build() -> ir.Value:
        stored, known = constant(table), constant(positions)
        if stored is not None and known is not None and _only_at_constants(table):

            def rows_at() -> ir.TensorProtocol:
                rows = np.expand_dims(stored.numpy()[known.numpy()], axis)
                return ir.tensor(np.ascontiguousarray(rows), dtype=stored.dtype)

            shape = [*static_dims(positions), static_dims(table)[1]]
            shape.insert(axis, 1)
            lazy = ir.LazyTensor(rows_at, stored.dtype, ir.Shape(shape))
            return op.weight(("rows", table, positions, axis), lazy, "rows")
        return spread(op, op.Gather(table, positions, axis=0), axis)

    return op.once(("rows", table, positions, axis), build)


def spread(op: Tape, angles: ir.Value, axis: int) -> ir.Value:
    """Angles (B, S, R/2) for all heads: (B, 1, S, R/2) or (B, S, 1, R/2)."""
    return op.Unsqueeze(angles, op.const(np.array([axis], np.int64), name="heads_axis"))


def _only_at_constants(table: ir.Value) -> bool:
    """Whether all uses of a table look up constant rows, fewer than it has altogether."""
    looked_up: dict[ir.Value, int] = {}
    for node, _ in table.uses():
        if op_of(node) not in _ROTATIONS:
            return False
        names = schema_of(op_of(node), 23).inputs
        positions = dict(zip(names, node.inputs, strict=False)).get("position_ids")
        known = constant(positions)
        if positions is None or known is None or len(known.shape) != 2:
            return False
        looked_up[positions] = known.size
    return not table.is_graph_output() and sum(looked_up.values()) <= static_dims(table)[0]


def rotate(
    op: Tape, x: ir.Value, cos: ir.Value, sin: ir.Value, *, interleaved: bool = False
) -> ir.Value:
    """Rotation of x (·, ·, ·, D) by angles of rank 4 (·, ·, ·, R/2); the tail D - R passes.

    With x = [a, b, tail]: [a·cos - b·sin, b·cos + a·sin, tail]; interleaved, a are the even
    features and b the odd ones.
    """
    half, size = static_dims(cos)[-1], static_dims(x)[-1]
    if interleaved:
        return _rotate_neighbours(op, x, cos, sin, half, size)
    tail = size - 2 * half
    sizes = op.const(np.array([half, half] + [tail] * (tail > 0), np.int64), name="halves")
    a, b, *rest = op.emit("Split", (x, sizes), {"axis": -1}, outputs=3 if tail else 2)
    return op.Concat(*_rotated_pairs(op, a, b, cos, sin), *rest, axis=-1)


def _rotate_neighbours(
    op: Tape, x: ir.Value, cos: ir.Value, sin: ir.Value, half: int, size: int
) -> ir.Value:
    first, second, third, _ = static_dims(x)
    a, b = (_features(op, x, (start, 2 * half, 2)) for start in (0, 1))
    column, shape = (first, second * third, half, 1), (first, second, third, 2 * half)
    parts = _rotated_pairs(op, a, b, cos, sin)
    pairs = [reshaped(op, part, column, "pairs_shape") for part in parts]
    rotated = reshaped(op, op.Concat(*pairs, axis=-1), shape, "rotated_shape")
    if size == 2 * half:
        return rotated
    return op.Concat(rotated, _features(op, x, (2 * half, size, 1)), axis=-1)


def _rotated_pairs(
    op: Tape, a: ir.Value, b: ir.Value, cos: ir.Value, sin: ir.Value
) -> tuple[ir.Value, ir.Value]:
    return op.Sub(op.Mul(a, cos), op.Mul(b, sin)), op.Add(op.Mul(b, cos), op.Mul(a, sin))


def _features(op: Tape, x: ir.Value, bounds: Sequence[int]) -> ir.Value:
    """Every ``step``-th feature of x from ``start`` to ``end``."""
    start, end, step = (op.const(np.array([at], np.int64), name="bound") for at in bounds)
    return op.Slice(x, start, end, op.const(np.array([-1], np.int64), name="last_axis"), step)
