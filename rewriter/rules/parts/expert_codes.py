"""The packed weights of all experts of a layer as one constant each, codes, scales, zero points.

Codes are moved as they are, whole bytes at a time, and every constant is lazy: it is made when
the file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rules.parts.expert_arrangement import Arrangement, Array
from rewriter.site import Refusal
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class ExpertCodes:
    """A weight stored as MatMulNBits has it, s·(q - z) in blocks along K, for each expert.

    Attributes:
        key: names the weight among the constants of a graph.
        codes: uint8 (E, N, K·bits/8), low bits first.
        scales: (E, N, K/b), or (E, N) for one block along K.
        zero_points: uint8, packed along the blocks (E, N, ·), or along N (E, ·) for one block;
            2^(bits-1) where none are given.
        bits: 2, 4 or 8.
        arrangement: of the experts.
    """

    key: Hashable
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    zero_points: ir.TensorProtocol | None
    bits: int
    arrangement: Arrangement

    @property
    def grid(self) -> tuple[int, int]:
        """E and N."""
        count, rows = (int(d) for d in self.codes.shape.numpy()[:2])
        return count, rows

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

    def sizes(self, count: int, block: int) -> dict[str, int]:
        """Attributes of a MatMulNBits for that many experts."""
        n, k = self.arrangement.shape(count, self.grid[1], self.columns)
        return {"K": k, "N": n, "bits": self.bits, "block_size": block}

    def block_of_whole_bytes(self) -> int:
        """A block that leaves no expert's zero points in a byte with those of the next.

        Raises:
            Refusal: there is none down to 16.
        """
        block = self.block
        if self.zero_points is None or self.arrangement.order is not None:
            return block
        while self.columns // block * self.bits % 8:
            if block == 16:
                raise Refusal("zero points of an expert share a byte with those of the next one")
            block //= 2
        return block

    def stored(self, op: Tape, block: int, shapes: tuple[tuple[int, ...], ...]) -> list[ir.Value]:
        """Codes, scales and zero points of all experts, in shapes of which one dim may be -1."""
        count, rows = self.grid
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
