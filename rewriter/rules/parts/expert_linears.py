"""The weights of all experts of a layer as one constant, from tensors that hold all experts.

Packed codes are moved as they are, whole bytes at a time, and every constant is lazy: it is made
when the file is written.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rules.parts.expert_arrangement import Arrangement, Array, biased
from rewriter.tape import Tape


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

    def __call__(self, op: Tape, x: ir.Value) -> ir.Value:
        """MatMul with the transposed weight, and the bias."""
        n, k = self.arrangement.shape(*(int(d) for d in self.weight.shape.numpy()))

        def matrix() -> ir.TensorProtocol:
            transposed = self.arrangement(self.weight.numpy()).T
            return ir.tensor(np.ascontiguousarray(transposed), dtype=self.weight.dtype)

        lazy = ir.LazyTensor(matrix, self.weight.dtype, ir.Shape((k, n)))
        y = op.MatMul(x, op.weight((self.key, self.arrangement), lazy, "experts"))
        return biased(op, y, self.bias, self.arrangement)


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

    def __call__(self, op: Tape, x: ir.Value) -> ir.Value:
        """MatMulNBits with the codes of all, and the bias."""
        count, rows = (int(d) for d in self.codes.shape.numpy()[:2])
        block, bits = self.block, self.bits
        n, k = self.arrangement.shape(count, rows, self.columns)

        def codes() -> ir.TensorProtocol:
            stacked = self.arrangement(self.codes.numpy())
            return ir.tensor(np.ascontiguousarray(stacked).reshape(n, k // block, -1))

        def scales() -> ir.TensorProtocol:
            repeated = self._by_block(self.scales.numpy())
            return ir.tensor(np.ascontiguousarray(repeated), dtype=self.scales.dtype)

        def points() -> ir.TensorProtocol:
            assert self.zero_points is not None
            packed, axis_n = self.zero_points.numpy(), len(self.zero_points.shape) == 2
            blocks = int(self.scales.shape.numpy()[2]) if not axis_n else rows
            loose = self._by_block(packing.unpack_bits(packed, bits, blocks))
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
                (self.key, self.arrangement, name),
                ir.LazyTensor(make, dtype, ir.Shape(shape)),
                name,
            )
            for name, make, dtype, shape in made
        ]
        y = op.ms("MatMulNBits", x, *stored, K=k, N=n, bits=bits, block_size=block)
        return biased(op, y, self.bias, self.arrangement)

    def _by_block(self, array: Array) -> Array:
        """Scales or zero points, one for each block of MatMulNBits."""
        array = array if array.ndim == 3 else array[:, :, None]
        times = self.columns // self.block // array.shape[2]
        return self.arrangement(np.repeat(array, times, axis=2))
