"""Tensors made of several, or of turned ones, while they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.rows import Bytes, RowTensor, Selection, taken
from frontends.decoder.weights import Float, Quantized, Weight
from frontends.safetensors.header import Stored
from rewriter.errors import BadInput

DTYPES = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
}
"""Types of weights that are stored as floats."""


class StoredTensor(RowTensor):
    """Floats as a file has them: read as a whole, they are mapped, not copied.

    Raises:
        BadInput: the tensor has another type.
    """

    def __init__(self, name: str, stored: Stored) -> None:
        dtype = DTYPES.get(stored.dtype)
        if dtype is None:
            raise BadInput(
                f"{stored.path}: the tensor '{name}' has the type {stored.dtype}, and weights that "
                f"are not quantized have one of {', '.join(DTYPES)}"
            )
        self._stored = stored
        count = math.prod(stored.shape[: max(len(stored.shape) - 1, 1)])
        super().__init__(lambda chosen: stored.rows()[chosen], dtype, stored.shape, count)

    def _whole(self) -> ir.TensorProtocol:
        array = self._stored.rows().reshape(-1).view(self.dtype.numpy())
        return ir.Tensor(array.reshape(self._stored.shape), dtype=self.dtype)


def turned(tensor: ir.TensorProtocol) -> RowTensor:
    """(E, K, N) as (E, N, K)."""
    experts, k, n = (int(d) for d in tensor.shape.numpy())

    def take(chosen: Selection) -> Bytes:
        numbers = np.arange(experts * n, dtype=np.intp)[chosen]
        array: npt.NDArray[Any] = tensor.numpy()
        result = np.empty((len(numbers), k), array.dtype)
        for expert in np.unique(numbers // n):
            mine = numbers // n == expert
            result[mine] = array[expert][:, numbers[mine] % n].T
        return result.view(np.uint8)

    return RowTensor(take, tensor.dtype, (experts, n, k), experts * n)


def shifted(tensor: ir.TensorProtocol, shift: float) -> ir.TensorProtocol:
    """The weight of a norm plus a number, in float32."""

    def read() -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy().astype(np.float32) + np.float32(shift))

    return ir.LazyTensor(read, ir.DataType.FLOAT, ir.Shape(tensor.shape.numpy()))


def stacked(weights: Sequence[Weight], fault: Callable[[], BadInput]) -> Weight:
    """Weights of one shape and form, one after the other along a new first axis.

    Args:
        weights: at least one.
        fault: what to raise where they differ.

    Raises:
        BadInput: they differ.
    """
    first = weights[0]
    if any(one.shape != first.shape for one in weights):
        raise fault()
    if isinstance(first, Float):
        tensors = [one.tensor for one in weights if isinstance(one, Float)]
        return Float(_stacked(tensors, len(weights), first.shape, fault))
    same = _form(first)
    quantized = [one for one in weights if isinstance(one, Quantized)]
    if any(_form(one) != same for one in quantized):
        raise fault()
    count, shape = len(weights), first.shape
    minimums = [one.minimums for one in quantized if one.minimums is not None]
    zeros = [one.zeros for one in quantized if one.zeros is not None]
    return replace(
        first,
        shape=(count, *shape),
        codes=_stacked([one.codes for one in quantized], count, shape, fault),
        scales=_stacked([one.scales for one in quantized], count, shape, fault),
        minimums=_stacked(minimums, count, shape, fault) if minimums else None,
        zeros=_stacked(zeros, count, shape, fault) if zeros else None,
    )


def _form(weight: Quantized) -> tuple[int, int, int, bool, bool]:
    least, zeros = weight.minimums is None, weight.zeros is None
    return weight.bits, weight.block, weight.zero, least, zeros


def _stacked(
    tensors: Sequence[ir.TensorProtocol],
    count: int,
    weight: Sequence[int],
    fault: Callable[[], BadInput],
) -> RowTensor:
    """Tensors of weights of a shape; a vector is one row."""
    first = tensors[0]
    if len(tensors) != count or any(tensor.dtype != first.dtype for tensor in tensors):
        raise fault()
    rows = weight[0] if len(weight) > 1 else 1

    def take(chosen: Selection) -> Bytes:
        numbers = np.arange(count * rows, dtype=np.intp)[chosen]
        size = int(first.nbytes) // rows
        result = np.empty((len(numbers), size), np.uint8)
        for which in np.unique(numbers // rows):
            mine = numbers // rows == which
            within = numbers[mine] % rows
            found = taken(tensors[which], weight, within if len(weight) > 1 else slice(None))
            result[mine] = found.reshape(len(within), -1)
        return result

    dims = tuple(int(d) for d in first.shape.numpy())
    return RowTensor(take, first.dtype, (count, *dims), count * rows)
