"""Softmax over keys, with or without a sink in its denominator.

A sink z is one more score that no key has: w_j = exp(x_j) / (exp(z) + Σ exp(x_i)). Smooth softmax
is the same with z = 0. Neither is masked or capped (ONNX Runtime 1.32, GroupQueryAttention).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rules.parts.attention import in_rows, sizes
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.tape import Tape


def softmax(op: Tape, scores: ir.Value, sink: ir.Value | None = None) -> ir.Value:
    """Weights (B, Hk, G·S, T) of scores of that shape; ``sink`` as :func:`sink_rows` gives it."""
    if sink is None:
        return op.Softmax(scores, axis=-1)
    keys = sizes(scores)[3]
    weights = op.Softmax(op.Concat(scores, sink, axis=-1), axis=-1)
    return sliced(op, weights, 0, keys, 3)


def sink_rows(
    op: Tape, sink: ir.Value | None, batch: int, heads: int, groups: int, tokens: int,
    dtype: ir.DataType,
) -> ir.Value:  # fmt: skip
    """Sinks (Hq) of the query heads as (B, Hk, G·S, 1); zeros where none are given.

    Args:
        op: the tape.
        sink: one number a query head, or nothing for smooth softmax.
        batch: B.
        heads: Hq.
        groups: G.
        tokens: S.
        dtype: of the scores.
    """
    shape = np.array([batch, heads // groups, groups * tokens, 1], np.int64)
    stored = constant(sink)
    if sink is None or stored is not None:
        given = np.zeros(heads) if stored is None else stored.numpy().reshape(heads)
        rows = np.repeat(given, tokens).reshape(1, *shape[1:])
        return op.const(np.repeat(rows, batch, axis=0), dtype, name="sink")

    def build() -> ir.Value:
        column = reshaped(op, sink, (1, heads, 1, 1))
        rows = in_rows(op, column, groups, tokens)
        return op.Expand(rows, op.const(shape, name="sink_shape"))

    return op.once(("sink", sink, batch, groups, tokens), build)
