"""Writing new keys and values into a cache (B, Hk, C, D), whose capacity C is not its valid
length: new rows go to the positions of the new tokens, wherever the buffer ends.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.shorthand import axes, sliced
from rewriter.tape import Tape


def write(
    op: Tape, past: ir.Value | None, new: ir.Value, positions: ir.Value, length: int
) -> ir.Value:
    """The cache (B, Hk, length, D) with rows ``positions`` (B, S) replaced by ``new``.

    Rows between the valid past and the end are whatever the buffer held; ONNX Runtime leaves
    them unspecified, and no query sees them.
    """
    batch, heads, tokens, size = static_dims(new)
    buffer = _grown(op, past, new, length)
    if buffer is new:
        return new

    def build() -> ir.Value:
        column = op.Unsqueeze(positions, axes(op, 1, 3))
        shape = op.const(np.array([batch, heads, tokens, size], np.int64), name="rows_shape")
        return op.Expand(column, shape)

    rows = op.once(("cache rows", positions, heads, size), build)
    return op.ScatterElements(buffer, rows, new, axis=2)


def write_first(op: Tape, past: ir.Value | None, new: ir.Value, length: int) -> ir.Value:
    """The cache (B, Hk, length, D) with its first rows replaced by those of a first prompt."""
    tokens = static_dims(new)[2]
    capacity = 0 if past is None else static_dims(past)[2]
    if capacity <= tokens or past is None:
        return new
    return op.Concat(new, sliced(op, past, tokens, length, 2), axis=2)


def _grown(op: Tape, past: ir.Value | None, new: ir.Value, length: int) -> ir.Value:
    """The past, made as long as the result; what is added is overwritten or never seen."""
    _batch, _heads, tokens, _size = static_dims(new)
    capacity = 0 if past is None else static_dims(past)[2]
    if past is None or capacity == 0:
        missing = length - tokens
        return new if missing == 0 else op.Concat(new, _zeros(op, new, missing), axis=2)
    missing = length - capacity
    if missing == 0:
        return past
    extra = new if missing == tokens else _zeros(op, new, missing)
    return op.Concat(past, extra, axis=2)


def _zeros(op: Tape, like: ir.Value, rows: int) -> ir.Value:
    batch, heads, _, size = static_dims(like)
    assert like.dtype is not None
    return op.const(np.zeros((batch, heads, rows, size)), like.dtype, name="unwritten")
