"""What some checkpoints do beside a weight: to its input before it, and to its output after it.

They are weights themselves, named after the one they belong to, and there where a checkpoint has
them: ``NAME.order`` int64 (K,), ``NAME.prescale`` (K,), ``NAME.rotation`` (K, K), and of an adapter
``NAME.lora_a`` (r, K), ``NAME.lora_b`` (N, r) and ``NAME.lora_scale`` (1,). The weight multiplies
``(x[order] * prescale) · rotation``; the adapter adds ``x · aᵀ · scale · bᵀ`` of the x before.
Those of stacked experts are (E, r, K) and (E, N, r); the others are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.draft import Scope
from frontends.decoder.rows import transposed
from frontends.decoder.weights import Float
from rewriter.tape import Tape


def prepared(scope: Scope, x: ir.Value, name: str) -> ir.Value:
    """X (..., K) as a weight multiplies it; once for all weights that want the same of it."""
    op = scope.op
    if scope.has(f"{name}.order"):
        order = _shared(scope, f"{name}.order")
        x = op.once(("ordered", x, order), partial(op.Gather, x, order, axis=-1))
    if scope.has(f"{name}.prescale"):
        scale = widened(op, _shared(scope, f"{name}.prescale"))
        x = op.once(("prescaled", x, scale), partial(op.Mul, x, scale))
    if scope.has(f"{name}.rotation"):
        matrix = widened(op, _shared(scope, f"{name}.rotation"))
        x = op.once(("rotated", x, matrix), partial(op.MatMul, x, matrix))
    return x


def adapted(scope: Scope, x: ir.Value, name: str, y: ir.Value) -> ir.Value:
    """The output y (..., N) of a weight for x (..., K), plus what its adapter gives."""
    if not scope.has(f"{name}.lora_a"):
        return y
    op = scope.op
    first, second = (_constant(scope, f"{name}.lora_{part}", transposed) for part in "ab")
    inner = op.Mul(op.MatMul(x, first), _scale(scope, name))
    return op.Add(y, op.MatMul(inner, second))


def adapted_experts(scope: Scope, x: ir.Value, name: str, y: ir.Value, group: range) -> ir.Value:
    """The outputs y (1, T, n·N) of some experts for x (1, T, K), plus what their adapters give."""
    if not scope.has(f"{name}.lora_a"):
        return y
    op = scope.op

    def rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[group.start : group.stop].reshape(-1, array.shape[2]).T

    def each(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[group.start : group.stop].transpose(0, 2, 1)

    part = f".{group.start}"
    inner = op.MatMul(x, _made(scope, f"{name}.lora_a", part, rows))
    inner = op.Mul(inner, _scale(scope, name))
    added = op.MatMul(_by_expert(op, inner, len(group)), _made(scope, f"{name}.lora_b", part, each))
    return op.Add(y, _side_by_side(op, added))


def adapted_sum(scope: Scope, x: ir.Value, name: str, y: ir.Value, group: range) -> ir.Value:
    """The sum y (1, T, N) of some experts' outputs for x (1, T, n·K), plus that of adapters."""
    if not scope.has(f"{name}.lora_a"):
        return y
    op = scope.op

    def each(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[group.start : group.stop].transpose(0, 2, 1)

    def rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array[group.start : group.stop].transpose(0, 2, 1).reshape(-1, array.shape[1])

    part = f".{group.start}"
    inner = op.MatMul(_by_expert(op, x, len(group)), _made(scope, f"{name}.lora_a", part, each))
    inner = op.Mul(_side_by_side(op, inner), _scale(scope, name))
    return op.Add(y, op.MatMul(inner, _made(scope, f"{name}.lora_b", part, rows)))


def widened(op: Tape, value: ir.Value) -> ir.Value:
    """Float32 of what is stored in 16 bits, which stays so in the file."""
    if value.dtype == ir.DataType.FLOAT:
        return value
    wide: ir.Value = op.once(("float32 of", value), lambda: op.Cast(value, to=ir.DataType.FLOAT))
    return wide


def _by_expert(op: Tape, x: ir.Value, count: int) -> ir.Value:
    """(1, T, n·K) as (n, T, K)."""
    assert x.shape is not None
    width = x.shape[-1]
    assert isinstance(width, int)
    parts = op.Reshape(x, op.const([-1, count, width // count], ir.DataType.INT64))
    return op.Transpose(parts, perm=[1, 0, 2])


def _side_by_side(op: Tape, x: ir.Value) -> ir.Value:
    """(n, T, N) as (1, T, n·N)."""
    assert x.shape is not None
    count, width = x.shape[0], x.shape[-1]
    assert isinstance(count, int)
    assert isinstance(width, int)
    tokens = op.Transpose(x, perm=[1, 0, 2])
    return op.Reshape(tokens, op.const([1, -1, count * width], ir.DataType.INT64))


def _tensor(scope: Scope, name: str) -> ir.TensorProtocol:
    weight = scope.weight(name)
    assert isinstance(weight, Float)
    return weight.tensor


def _shared(scope: Scope, name: str) -> ir.Value:
    """A constant that other weights may have too: their tensor is the same object."""
    tensor = _tensor(scope, name)
    return scope.op.weight(("shared", id(tensor)), tensor, scope.prefix + name)


def _scale(scope: Scope, name: str) -> ir.Value:
    return _shared(scope, f"{name}.lora_scale")


def _constant(
    scope: Scope, name: str, change: Callable[[ir.TensorProtocol], ir.TensorProtocol]
) -> ir.Value:
    return widened(scope.op, scope.constant(name, change(_tensor(scope, name))))


def _made(
    scope: Scope, name: str, part: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
) -> ir.Value:
    """A constant made of the stack of all experts; adapters are small."""
    tensor = _tensor(scope, name)
    made = ir.tensor(change(tensor.numpy()).copy(), dtype=tensor.dtype)
    return widened(scope.op, scope.constant(name + part, made))
