"""Norms of decoders."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from frontends.decoder.config import Decoder
from frontends.decoder.draft import Scope, width


def norm(scope: Scope, decoder: Decoder, x: ir.Value, name: str) -> ir.Value:
    """Normalize x over its last axis with the weight of a name, and its bias if there is one."""
    size = width(x)
    inputs = [x, scope.vector(f"{name}.weight", size)]
    if scope.has(f"{name}.bias"):
        inputs.append(scope.vector(f"{name}.bias", size))
    return _apply(scope, decoder, inputs)


def plain_norm(scope: Scope, decoder: Decoder, x: ir.Value, size: int) -> ir.Value:
    """Normalize x (..., size) over its last axis, without a weight."""
    return _apply(scope, decoder, [x, scope.op.const(np.ones(size, np.float32))])


def head_norm(
    scope: Scope, decoder: Decoder, x: ir.Value, name: str, heads: int, size: int
) -> ir.Value:
    """Normalize x (B, S, heads·D) over each head, or over all if its weight is that long.

    The weight is (D,), one for all heads, (heads, D), one for each, or (heads·D,).
    """
    op, shape = scope.op, scope.weight(f"{name}.weight").shape
    if shape == (heads * size,) and heads > 1:
        return norm(scope, decoder, x, name)
    split = op.Reshape(x, op.const([0, 0, heads, size], ir.DataType.INT64))
    if len(shape) == 1:
        normed = norm(scope, decoder, split, name)
    else:
        plain = plain_norm(scope, decoder, split, size)
        normed = op.Mul(plain, scope.vector(f"{name}.weight", heads, size))
    return op.Reshape(normed, op.const([0, 0, heads * size], ir.DataType.INT64))


def _apply(scope: Scope, decoder: Decoder, inputs: list[ir.Value]) -> ir.Value:
    kind = decoder.architecture.norm
    return scope.op.emit(kind, inputs, {"axis": -1, "epsilon": decoder.epsilon})[0]
