"""Weights made smaller on request, with the error of each measured while it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends.decoder.rows import Bytes, RowTensor, Selection, taken
from frontends.decoder.weights import Float, Quantized, Weight
from rewriter.packing import pack_bits, unpack_bits

Kind = Literal["exact", "int4", "int8", "fp16"]
Floats = npt.NDArray[np.float32]

_BITS: dict[Kind, int] = {"int4": 4, "int8": 8}
_BLOCKS = (32, 16)
"""Sizes of blocks, the first one that divides the rows."""
_PIECE = 1 << 20
"""Values that are floats at a time."""


@dataclass(slots=True)
class Loss:
    """The error of a weight, as far as it was written.

    Attributes:
        difference: largest ``|w - w'|``.
        largest: largest ``|w|``.
    """

    difference: float = 0.0
    largest: float = 0.0

    @property
    def value(self) -> float:
        """Largest difference over the largest weight."""
        return self.difference / self.largest if self.difference else 0.0

    def note(self, values: Floats, made: Floats) -> None:
        """Look at a part of a weight and what became of it."""
        difference = np.abs(values - made).max(initial=self.difference)
        self.difference = float(difference)  # NaN, once there is one
        self.largest = float(np.abs(values).max(initial=self.largest))


def requantized(weight: Weight, kind: Kind) -> tuple[Weight, Loss]:
    """A weight in a smaller form.

    ``int4`` and ``int8`` are symmetric, with a scale for 32 values of a row. What is a vector,
    or no larger than the form asked for, stays as it is, and exact.

    Returns:
        The weight, and its error, which grows to its value while the codes are written.
    """
    loss = Loss()
    if kind == "exact" or len(weight.shape) < 2 or _fits(weight, kind):
        return weight, loss
    if kind == "fp16":
        return Float(_rounded(weight, loss)), loss
    block = next((size for size in _BLOCKS if weight.shape[-1] % size == 0), None)
    if block is None:
        return weight, loss
    return _integers(weight, _BITS[kind], block, loss), loss


def _fits(weight: Weight, kind: Kind) -> bool:
    """Whether a weight is no larger than the form asked for.

    Without minimums its form is the one asked for, so only its bits count.
    """
    if isinstance(weight, Float):
        return kind == "fp16" and weight.tensor.dtype == ir.DataType.FLOAT16
    if kind == "fp16":
        return True
    if weight.bits > _BITS[kind]:
        return False
    if weight.minimums is None:
        return True
    per_value = weight.bits + 2 * 32 / weight.block
    return per_value <= _BITS[kind] + 32 / _BLOCKS[0]


def _rounded(weight: Weight, loss: Loss) -> RowTensor:
    """Float16, the largest finite one for what is beyond it."""
    most = float(np.finfo(np.float16).max)

    def make(values: Floats) -> npt.NDArray[Any]:
        halves = np.clip(values, -most, most).astype(np.float16)
        loss.note(values, halves.astype(np.float32))
        return halves

    return _made(weight, make, ir.DataType.FLOAT16, weight.shape)


def _integers(weight: Weight, bits: int, block: int, loss: Loss) -> Quantized:
    *outer, width = weight.shape
    blocks = width // block
    zero = 1 << (bits - 1)

    def make_scales(values: Floats) -> npt.NDArray[Any]:
        return _scales(values.reshape(-1, block), zero)

    def make_codes(values: Floats) -> npt.NDArray[Any]:
        runs = values.reshape(-1, block)
        scales = _scales(runs, zero)
        steps = np.divide(runs, scales, out=np.zeros_like(runs), where=scales != 0)
        codes = np.clip(np.rint(steps) + zero, 0, 2 * zero - 1)
        loss.note(runs, scales * (codes - np.float32(zero)))
        return pack_bits(codes.astype(np.uint8), bits)

    packed = (*outer, blocks, block * bits // 8)
    codes = _made(weight, make_codes, ir.DataType.UINT8, packed)
    scales = _made(weight, make_scales, ir.DataType.FLOAT, (*outer, blocks))
    return Quantized(weight.shape, bits, block, zero, codes, scales)


def _scales(runs: Floats, zero: int) -> Floats:
    """The value furthest from 0 becomes the lowest code, which reaches further than the highest."""
    furthest = np.abs(runs).argmax(axis=1)[:, None]
    return np.take_along_axis(runs, furthest, axis=1) / np.float32(-zero)


def _made(
    weight: Weight,
    make: Callable[[Floats], npt.NDArray[Any]],
    dtype: ir.DataType,
    shape: tuple[int, ...],
) -> RowTensor:
    """A tensor that is made of a weight's values, some rows at a time."""
    *outer, width = weight.shape
    count = math.prod(outer)
    row = math.prod(shape) * dtype.itemsize // count
    step = max(1, _PIECE // width)

    def take(chosen: Selection) -> Bytes:
        order = np.arange(count, dtype=np.intp)[chosen]
        result = np.empty((len(order), int(row)), np.uint8)
        for start in range(0, len(order), step):
            made = make(_values(weight, order[start : start + step]))
            part = result[start : start + step]
            part[:] = made.reshape(len(part), -1).view(np.uint8)
        return result

    return RowTensor(take, dtype, shape, count)


def _values(weight: Weight, chosen: Selection) -> Floats:
    """Rows of a weight as float32."""
    if isinstance(weight, Float):
        stored = taken(weight.tensor, weight.shape, chosen)
        return stored.view(weight.tensor.dtype.numpy()).astype(np.float32)
    blocks = weight.shape[-1] // weight.block
    packed = taken(weight.codes, weight.shape, chosen)
    codes = unpack_bits(packed, weight.bits, weight.shape[-1]).reshape(-1, blocks, weight.block)
    scales = taken(weight.scales, weight.shape, chosen).view(np.float32)[..., None]
    zero: Any = np.float32(weight.zero)
    if weight.zeros is not None:
        zero = taken(weight.zeros, weight.shape, chosen).astype(np.float32)[..., None]
    values: Floats = scales * (codes.astype(np.float32) - zero)
    if weight.minimums is not None:
        values -= taken(weight.minimums, weight.shape, chosen).view(np.float32)[..., None]
    return values.reshape(len(packed), -1)
