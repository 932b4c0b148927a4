"""Nodes whose operands are numbers that are known now, written in one line by every rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.tape import Tape


def number(op: Tape, like: ir.Value, value: float) -> ir.Value:
    """A scalar of the type of another value."""
    return op.const(np.float64(value), like.dtype, name="number")


def axes(op: Tape, *numbers: int) -> ir.Value:
    """Axes as ReduceSum, Squeeze and Unsqueeze take them."""
    return op.const(np.array(numbers, np.int64), name="axes")


def reshaped(op: Tape, x: ir.Value, shape: Sequence[int], name: str = "shape") -> ir.Value:
    """X in another shape, whose constant gets a name; 0 keeps a dim, -1 is the rest."""
    return op.Reshape(x, op.const(np.array(shape, np.int64), name=name))


def in_shape(op: Tape, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The same, and x itself where it has that shape already."""
    return x if dims_of(x) == tuple(shape) else reshaped(op, x, shape)


def sliced(
    op: Tape, x: ir.Value, start: int, end: int, axis: int, step: int | None = None
) -> ir.Value:
    """X from ``start`` to ``end`` along an axis."""
    bounds = (start, end, axis) if step is None else (start, end, axis, step)
    return op.Slice(x, *(op.const(np.array([at], np.int64), name="bound") for at in bounds))
