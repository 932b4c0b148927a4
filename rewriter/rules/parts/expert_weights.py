"""The weights of a group of experts as one constant, from tensors that hold all experts.

The first product stacks rows (E, N, K) -> (g·N, K), gates before values; the second lays the
experts side by side, (E, N, K) -> (N, g·K). Packed codes are moved as they are, whole bytes at a
time, and every constant is lazy: it is made when the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.tape import Tape

Array = npt.NDArray[Any]


class Order:
    """Where the rows of W1 hold gates and values: functions of row numbers (E, N)."""

    @staticmethod
    def plain(rows: Array) -> list[Array]:
        """No gates."""
        return [rows]

    @staticmethod
    def interleaved(rows: Array) -> list[Array]:
        """g0, l0, g1, l1, ..."""
        return [rows[:, 0::2], rows[:, 1::2]]

    @staticmethod
    def halves(rows: Array) -> list[Array]:
        """All g, then all l."""
        return list(np.split(rows, 2, axis=1))


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the experts of a group come together; without an order they lie side by side."""

    order: Callable[[Array], list[Array]] | None

    def shape(self, rows: int, columns: int, experts: range) -> tuple[int, int]:
        """Of the result for (E, rows, columns)."""
        count = len(experts)
        return (rows * count, columns) if self.order else (rows, columns * count)

    def __call__(self, array: Array, experts: range) -> Array:
        """The experts of an array (E, rows, columns) as one matrix."""
        part = array[experts.start : experts.stop]
        count, rows, columns = part.shape
        if self.order is None:
            return part.transpose(1, 0, 2).reshape(rows, count * columns)
        taken = [at.reshape(-1) for at in self.order(np.arange(count * rows).reshape(count, rows))]
        stacked: Array = part.reshape(count * rows, columns)[np.concatenate(taken)]
        return stacked


@dataclass(frozen=True, slots=True)
class FloatLinear:
    """Experts whose weight (E, N, K) is stored as floats.

    Attributes:
        key: names the weight among the constants of a graph.
        weight: the tensor.
        arrangement: of its experts.
        bias: (E, N), of stacked rows only.
    """

    key: Hashable
    weight: ir.TensorProtocol
    arrangement: Arrangement
    bias: Array | None = None

    def __call__(self, op: Tape, x: ir.Value, experts: range) -> ir.Value:
        """MatMul with the transposed weight of the group, and the bias."""
        _, rows, columns = (int(d) for d in self.weight.shape.numpy())
        n, k = self.arrangement.shape(rows, columns, experts)

        def matrix() -> ir.TensorProtocol:
            turned = self.arrangement(self.weight.numpy(), experts).T
            return ir.tensor(np.ascontiguousarray(turned), dtype=self.weight.dtype)

        lazy = ir.LazyTensor(matrix, self.weight.dtype, ir.Shape((k, n)))
        y = op.MatMul(x, op.weight((self.key, self.arrangement, experts), lazy, "experts"))
        return biased(op, y, self.bias, self.arrangement, experts)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """Experts whose weight is stored as MatMulNBits has it, s·(q - z) in blocks along K.

    Attributes:
        key: names the weight among the constants of a graph.
        codes: uint8 (E, N, K·bits/8), low bits first.
        scales: (E, N, K/b), or (E, N) for one block along K.
        zero_points: uint8, packed along the blocks (E, N, ·), or along N (E, ·) for one block;
            2^(bits-1) where none are given.
        bits: 2, 4 or 8.
        arrangement: of the experts.
        bias: (E, N), of stacked rows only.
    """

    key: Hashable
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    zero_points: ir.TensorProtocol | None
    bits: int
    arrangement: Arrangement
    bias: Array | None = None

    @property
    def columns(self) -> int:
        """K of one expert."""
        return int(self.codes.shape.numpy()[2]) * 8 // self.bits

    @property
    def block(self) -> int:
        """The block of MatMulNBits: the largest power of 2 up to 256 that divides the weight's."""
        dims = self.scales.shape.numpy()
        own = self.columns // (int(dims[2]) if len(dims) == 3 else 1)
        return min(own & -own, 256)

    def __call__(self, op: Tape, x: ir.Value, experts: range) -> ir.Value:
        """MatMulNBits with the codes of the group, and the bias."""
        rows, block, bits = int(self.codes.shape.numpy()[1]), self.block, self.bits
        n, k = self.arrangement.shape(rows, self.columns, experts)

        def codes() -> ir.TensorProtocol:
            stacked = self.arrangement(self.codes.numpy(), experts)
            return ir.tensor(np.ascontiguousarray(stacked).reshape(n, k // block, -1))

        def scales() -> ir.TensorProtocol:
            repeated = self._by_block(self.scales.numpy(), experts)
            return ir.tensor(np.ascontiguousarray(repeated), dtype=self.scales.dtype)

        def points() -> ir.TensorProtocol:
            assert self.zero_points is not None
            packed, axis_n = self.zero_points.numpy(), len(self.zero_points.shape) == 2
            blocks = int(self.scales.shape.numpy()[2]) if not axis_n else rows
            loose = self._by_block(packing.unpack_bits(packed, bits, blocks), experts)
            return ir.tensor(packing.pack_bits(np.ascontiguousarray(loose), bits))

        made = [
            ("codes", codes, ir.DataType.UINT8, (n, k // block, block * bits // 8)),
            ("scales", scales, self.scales.dtype, (n, k // block)),
        ]
        if self.zero_points is not None:
            packed = -(-k // block * bits // 8)
            made.append(("zero_points", points, ir.DataType.UINT8, (n, packed)))
        stored = [
            op.weight(
                (self.key, self.arrangement, experts, name),
                ir.LazyTensor(make, dtype, ir.Shape(shape)),
                name,
            )
            for name, make, dtype, shape in made
        ]
        y = op.ms("MatMulNBits", x, *stored, K=k, N=n, bits=bits, block_size=block)
        return biased(op, y, self.bias, self.arrangement, experts)

    def _by_block(self, array: Array, experts: range) -> Array:
        """Scales or zero points of the group, one for each block of MatMulNBits."""
        array = array if array.ndim == 3 else array[:, :, None]
        times = self.columns // self.block // array.shape[2]
        return self.arrangement(np.repeat(array, times, axis=2), experts)


def biased(
    op: Tape, y: ir.Value, bias: Array | None, arrangement: Arrangement, experts: range
) -> ir.Value:
    """Y + the bias (E, N) of stacked rows; zeros add nothing."""
    if bias is None or not bias.any():
        return y
    rows = arrangement(bias[:, :, None], experts)
    return op.Add(y, op.const(rows.reshape(-1), y.dtype, name="bias"))
