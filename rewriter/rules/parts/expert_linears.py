"""The weights of all experts of a layer as one constant, from tensors that hold all experts.

Packed codes are moved as they are, whole bytes at a time, and every constant is lazy: it is made
when the file is written. The same bytes, with an axis for the experts, are what chosen experts
are gathered from at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.facts import static_dims
from rewriter.rules.parts.expert_arrangement import Arrangement, Array, biased
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Refusal
from rewriter.tape import Tape

Product = Callable[[Tape, ir.Value, list[ir.Value], dict[str, int]], ir.Value]
"""x · Wᵀ of codes, scales and perhaps zero points as MatMulNBits has them, and its attributes."""


def matmul_nbits(op: Tape, x: ir.Value, weight: list[ir.Value], sizes: dict[str, int]) -> ir.Value:
    """The product as the op itself."""
    return op.ms("MatMulNBits", x, *weight, **sizes)


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
        y = op.MatMul(x, self._stored(op, (k, n)))
        return biased(op, y, self.bias, self.arrangement)

    def of(self, op: Tape, x: ir.Value, experts: ir.Value) -> ir.Value:
        """The same of the experts (S,) alone, in their order."""
        count, rows, columns = (int(d) for d in self.weight.shape.numpy())
        (size,) = static_dims(experts)
        n, k = self.arrangement.shape(size, rows, columns)
        if self.arrangement.order is None:  # (E·K, N)
            grid = (1, count, columns * rows)
        else:  # (K, parts·E·rows of a part)
            outer, _, inner = self.arrangement.grid(count, rows)
            grid = (columns * outer, count, inner)
        chosen = op.Gather(self._stored(op, grid), experts, axis=1)
        y = op.MatMul(x, reshaped(op, chosen, (k, n), "matrix"))
        return biased(op, y, self.bias, self.arrangement, experts)

    def _stored(self, op: Tape, shape: tuple[int, ...]) -> ir.Value:
        """The transposed matrix of all experts, in a shape."""

        def matrix() -> ir.TensorProtocol:
            transposed = np.ascontiguousarray(self.arrangement(self.weight.numpy()).T)
            return ir.tensor(transposed.reshape(shape), dtype=self.weight.dtype)

        lazy = ir.LazyTensor(matrix, self.weight.dtype, ir.Shape(shape))
        return op.weight((self.key, self.arrangement, shape), lazy, "experts")


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
        product: with the weights of chosen experts.
    """

    key: Hashable
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    zero_points: ir.TensorProtocol | None
    bits: int
    arrangement: Arrangement
    bias: Array | None = None
    product: Product = matmul_nbits

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
        sizes = self._sizes(int(self.codes.shape.numpy()[0]), self.block)
        n, blocks = sizes["N"], sizes["K"] // self.block
        shapes = ((n, blocks, self.block * self.bits // 8), (n, blocks), (n, -1))
        y = matmul_nbits(op, x, self._stored(op, self.block, shapes), sizes)
        return biased(op, y, self.bias, self.arrangement)

    def of(self, op: Tape, x: ir.Value, experts: ir.Value) -> ir.Value:
        """The same of the experts (S,) alone, in their order.

        Raises:
            Refusal: zero points of an expert share a byte with those of another.
        """
        count, rows = (int(d) for d in self.codes.shape.numpy()[:2])
        (size,), block = static_dims(experts), self._block_of_whole_bytes()
        sizes = self._sizes(size, block)
        n, blocks = sizes["N"], sizes["K"] // block
        grid = self.arrangement.grid(count, rows)
        weight = [
            reshaped(op, op.Gather(stored, experts, axis=1), shape, "blocks")
            for stored, shape in zip(
                self._stored(op, block, ((*grid, -1),) * 3),
                ((n, blocks, block * self.bits // 8), (n, blocks), (n, -1)),
                strict=False,
            )
        ]
        y = self.product(op, x, weight, sizes)
        return biased(op, y, self.bias, self.arrangement, experts)

    def _sizes(self, count: int, block: int) -> dict[str, int]:
        """Attributes of a MatMulNBits for that many experts."""
        n, k = self.arrangement.shape(count, int(self.codes.shape.numpy()[1]), self.columns)
        return {"K": k, "N": n, "bits": self.bits, "block_size": block}

    def _block_of_whole_bytes(self) -> int:
        """A block that leaves no expert's zero points in a byte with those of the next."""
        block = self.block
        if self.zero_points is None or self.arrangement.order is not None:
            return block
        while self.columns // block * self.bits % 8:
            if block == 16:
                raise Refusal("zero points of an expert share a byte with those of the next one")
            block //= 2
        return block

    def _stored(self, op: Tape, block: int, shapes: tuple[tuple[int, ...], ...]) -> list[ir.Value]:
        """Codes, scales and zero points of all experts, in shapes of which one dim may be -1."""
        count, rows = (int(d) for d in self.codes.shape.numpy()[:2])
        bits, blocks = self.bits, self.columns // block
        n, k = self.arrangement.shape(count, rows, self.columns)

        def codes() -> Array:
            return self.arrangement(self.codes.numpy())

        def scales() -> Array:
            return self._by_block(self.scales.numpy(), blocks)

        def points() -> Array:
            assert self.zero_points is not None
            packed, axis_n = self.zero_points.numpy(), len(self.zero_points.shape) == 2
            own = int(self.scales.shape.numpy()[2]) if not axis_n else rows
            loose = self._by_block(packing.unpack_bits(packed, bits, own), blocks)
            return packing.pack_bits(np.ascontiguousarray(loose), bits)

        byte = ir.DataType.UINT8
        made = [
            ("codes", codes, byte, n * k * bits // 8),
            ("scales", scales, self.scales.dtype, n * k // block),
        ]
        if self.zero_points is not None:
            made.append(("zero_points", points, byte, n * -(-(k // block) * bits // 8)))
        return [
            self._constant(op, name, make, ir.TensorType(dtype), _filled(shape, size))
            for (name, make, dtype, size), shape in zip(made, shapes, strict=False)
        ]

    def _constant(
        self,
        op: Tape,
        name: str,
        make: Callable[[], Array],
        kind: ir.TensorType,
        shape: tuple[int, ...],
    ) -> ir.Value:
        def tensor() -> ir.TensorProtocol:
            return ir.tensor(np.ascontiguousarray(make()).reshape(shape), dtype=kind.dtype)

        lazy = ir.LazyTensor(tensor, kind.dtype, ir.Shape(shape))
        return op.weight((self.key, self.arrangement, name, shape), lazy, name)

    def _by_block(self, array: Array, blocks: int) -> Array:
        """Scales or zero points, one for each block of an expert's row."""
        array = array if array.ndim == 3 else array[:, :, None]
        return self.arrangement(np.repeat(array, blocks // array.shape[2], axis=2))


def _filled(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """A shape of so many elements, the dim of -1 found."""
    known = int(np.prod([d for d in shape if d >= 0]))
    return tuple(size // known if d < 0 else d for d in shape)
