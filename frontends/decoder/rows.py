"""Rows of a weight: some of them, or all in another order, taken when the weight is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.weights import Float, Weight
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
        super().__init__(lambda: lambda start, stop: take(slice(start, stop)), dtype, shape, count)
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
    shape = weight.shape
    if isinstance(weight, Float):
        return Float(_gathered(weight.tensor, shape, order))
    least, zeros = weight.minimums, weight.zeros
    return replace(
        weight,
        shape=(*shape[:-2], len(order), shape[-1]),
        codes=_gathered(weight.codes, shape, order),
        scales=_gathered(weight.scales, shape, order),
        minimums=None if least is None else _gathered(least, shape, order),
        zeros=None if zeros is None else _gathered(zeros, shape, order),
    )


def stacked(weight: Weight, experts: range) -> Weight:
    """The rows of some experts below each other: (E, N, K) to (n·N, K)."""
    _, n, _ = weight.shape
    chosen = np.arange(experts.start * n, experts.stop * n, dtype=np.intp)
    return _chosen(weight, chosen, (len(chosen),))


def side_by_side(weight: Weight, experts: range) -> Weight:
    """The columns of some experts beside each other: (E, N, K) to (N, n·K)."""
    _, n, _ = weight.shape
    first = np.asarray(experts, dtype=np.intp) * n
    return _chosen(weight, (np.arange(n, dtype=np.intp)[:, None] + first).reshape(-1), (n,))


def _chosen(weight: Weight, chosen: npt.NDArray[np.intp], outer: tuple[int]) -> Weight:
    """Rows of all experts, joined to fewer and longer ones where ``outer`` is fewer."""
    joined = len(chosen) // outer[0]

    def part(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        dims = tuple(int(d) for d in tensor.shape.numpy()[2:])
        shape = (*outer, joined * dims[0], *dims[1:])
        take = partial(_taken_at, tensor, weight.shape, chosen)
        return RowTensor(take, tensor.dtype, shape, len(chosen))

    if isinstance(weight, Float):
        return Float(part(weight.tensor))
    least, zeros = weight.minimums, weight.zeros
    return replace(
        weight,
        shape=(*outer, joined * weight.shape[2]),
        codes=part(weight.codes),
        scales=part(weight.scales),
        minimums=None if least is None else part(least),
        zeros=None if zeros is None else part(zeros),
    )


def _taken_at(
    tensor: ir.TensorProtocol,
    shape: Sequence[int],
    numbers: npt.NDArray[np.intp],
    chosen: Selection,
) -> Bytes:
    return taken(tensor, shape, numbers[chosen])


def taken(tensor: ir.TensorProtocol, shape: Sequence[int], chosen: Selection) -> Bytes:
    """Rows of a tensor of a weight, as bytes.

    Args:
        tensor: codes, scales, minimums, zero points or floats.
        shape: of the weight.
        chosen: numbers of rows, of all experts one after the other.
    """
    if isinstance(tensor, RowTensor):
        return tensor.take(chosen)
    array: npt.NDArray[Any] = np.ascontiguousarray(tensor.numpy())
    count = math.prod(shape[: max(len(shape) - 1, 1)])
    return array.reshape(count, -1).view(np.uint8)[chosen]


def _gathered(
    tensor: ir.TensorProtocol, weight: Sequence[int], order: npt.NDArray[np.intp]
) -> ir.TensorProtocol:
    axis = max(len(weight) - 2, 0)
    starts = np.arange(math.prod(weight[:axis]), dtype=np.intp)[:, None] * weight[axis]
    wanted = (starts + order[None]).reshape(-1)
    dims = tuple(int(d) for d in tensor.shape.numpy())
    shape = (*dims[:axis], len(order), *dims[axis + 1 :])
    return RowTensor(
        lambda chosen: taken(tensor, weight, wanted[chosen]), tensor.dtype, shape, len(wanted)
    )


def transposed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """An (N, K) tensor as (K, N); what it is made of is read once, not once for each piece."""
    n, k = (int(d) for d in tensor.shape.numpy())
    return StreamedTensor(lambda: partial(_columns, tensor.numpy()), tensor.dtype, (k, n), k)


def _columns(array: npt.NDArray[Any], start: int, stop: int) -> Bytes:
    """Bytes of some columns: numpy shares no buffer of bfloat16, whose dtype is not its own."""
    return np.ascontiguousarray(array[:, start:stop].T).view(np.uint8)
