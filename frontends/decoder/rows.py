"""Rows of a weight: some of them, or all in another order, taken when the weight is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.weights import Float, Quantized, Weight
from rewriter.streamed import StreamedTensor

Selection = slice | npt.NDArray[np.intp]
"""Row numbers of a whole tensor: a run of them, or a list."""
Bytes = npt.NDArray[np.uint8]


class RowTensor(StreamedTensor):
    """A tensor that can give any of its rows; stacked experts are one long run of rows.

    Args:
        take: the rows of a selection, as bytes (rows, bytes of a row).
        dtype: element type.
        shape: of the whole.
        count: rows: the product of the dims that say which.
    """

    def __init__(
        self,
        take: Callable[[Selection], Bytes],
        dtype: ir.DataType,
        shape: tuple[int, ...],
        count: int,
    ) -> None:
        super().__init__(lambda start, stop: take(slice(start, stop)), dtype, shape, count)
        self.take = take


def rows(weight: Weight, start: int, stop: int) -> Weight:
    """Rows ``start`` to ``stop`` of N; of every expert where experts are stacked (E, N, K)."""
    return gathered(weight, np.arange(start, stop, dtype=np.intp))


def gathered(weight: Weight, order: npt.NDArray[np.intp]) -> Weight:
    """The weight whose row ``i`` (of N) is row ``order[i]`` of the given one, in every expert.

    Args:
        weight: (N, K), (E, N, K), or (N,) of a bias.
        order: row numbers below N, of any count.
    """
    if isinstance(weight, Float):
        axis = max(len(weight.shape) - 2, 0)
        return Float(_gathered(weight.tensor, order, axis))
    axis = len(weight.shape) - 2
    codes, scales = (_gathered(t, order, axis) for t in (weight.codes, weight.scales))
    least = weight.minimums
    return replace(
        weight,
        shape=(*weight.shape[:axis], len(order), weight.shape[-1]),
        codes=codes,
        scales=scales,
        minimums=None if least is None else _gathered(least, order, axis),
    )


def _gathered(
    tensor: ir.TensorProtocol, order: npt.NDArray[np.intp], axis: int
) -> ir.TensorProtocol:
    shape = tuple(int(d) for d in tensor.shape.numpy())
    take = tensor.take if isinstance(tensor, RowTensor) else _taker(tensor, axis)
    outer = math.prod(shape[:axis])
    starts = np.arange(outer, dtype=np.intp)[:, None] * shape[axis]
    wanted = (starts + order[None]).reshape(-1)
    taken = (*shape[:axis], len(order), *shape[axis + 1 :])
    return RowTensor(lambda chosen: take(wanted[chosen]), tensor.dtype, taken, len(wanted))


def _taker(tensor: ir.TensorProtocol, axis: int) -> Callable[[Selection], Bytes]:
    """Rows of a tensor that is in memory or mapped into it."""

    def take(chosen: Selection) -> Bytes:
        array: npt.NDArray[Any] = np.ascontiguousarray(tensor.numpy())
        count = math.prod(array.shape[: axis + 1])
        return array.view(np.uint8).reshape(count, -1)[chosen]

    return take


__all__ = ["Quantized", "RowTensor", "gathered", "rows"]
