"""How large a constant would be that a node makes of constants, known before it is made.

A file of a few bytes can ask for terabytes: ``Range(0, 2^40, 1)``, ``Expand`` to a shape, or
operands that broadcast against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

_BROADCAST = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min",
    "Mod", "Mul", "Or", "Pow", "Sub", "Where",
})  # fmt: skip


def folded_size(op: str, inputs: Sequence[ir.TensorProtocol | None]) -> float:
    """Elements of the result of an op, or more; infinitely many where that cannot be told.

    Args:
        op: of ai.onnx, one that shape arithmetic uses.
        inputs: constants, ``None`` for one that is not given.
    """
    given = [tensor for tensor in inputs if tensor is not None]
    shapes = [[int(dim) for dim in tensor.shape.numpy()] for tensor in given]
    if op == "ConstantOfShape":
        return math.prod(_numbers(given[0]))
    if op == "Expand":
        return _broadcast([shapes[0], [int(dim) for dim in _numbers(given[1])]])
    if op == "Range":
        start, limit, step = (_numbers(tensor)[0] for tensor in given)
        return max((limit - start) / step, 0) if step else math.inf
    if op in _BROADCAST:
        return _broadcast(shapes)
    if op == "Gather":
        return math.prod(given[1].shape.numpy()) * given[0].size
    return sum(tensor.size for tensor in given)


def _numbers(tensor: ir.TensorProtocol) -> list[float]:
    found: list[float] = tensor.numpy().reshape(-1).tolist()
    return found


def _broadcast(shapes: Sequence[Sequence[int]]) -> int:
    rank = max(map(len, shapes), default=0)
    filled = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return math.prod(max(dims) for dims in zip(*filled, strict=True))
