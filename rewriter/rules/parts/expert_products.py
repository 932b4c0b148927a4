"""The experts of a layer as one MatMulNBits: of all of them, or of those chosen at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.expert_arrangement import Array, biased
from rewriter.rules.parts.expert_codes import ExpertCodes
from rewriter.rules.parts.shorthand import reshaped
from rewriter.tape import Tape

Product = Callable[[Tape, ir.Value, list[ir.Value], dict[str, int]], ir.Value]
"""x · Wᵀ of codes, scales and perhaps zero points as MatMulNBits has them, and its attributes."""


def matmul_nbits(op: Tape, x: ir.Value, weight: list[ir.Value], sizes: dict[str, int]) -> ir.Value:
    """The product as the op itself."""
    return op.ms("MatMulNBits", x, *weight, **sizes)


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """x · Wᵀ + b of experts whose weights are packed.

    Attributes:
        weight: of all experts.
        bias: (E, N), of stacked rows only.
        product: with the weights of chosen experts.
    """

    weight: ExpertCodes
    bias: Array | None = None
    product: Product = matmul_nbits

    def __call__(self, op: Tape, x: ir.Value) -> ir.Value:
        """MatMulNBits with the codes of all, and the bias."""
        w = self.weight
        sizes = w.sizes(w.grid[0], w.block)
        n, blocks = sizes["N"], sizes["K"] // w.block
        shapes = ((n, blocks, w.block * w.bits // 8), (n, blocks), (n, -1))
        y = matmul_nbits(op, x, w.stored(op, w.block, shapes), sizes)
        return biased(op, y, self.bias, w.arrangement)

    def of(self, op: Tape, x: ir.Value, experts: ir.Value) -> ir.Value:
        """The same of the experts (S,) alone, in their order.

        Raises:
            Refusal: zero points of an expert share a byte with those of another.
        """
        w = self.weight
        (size,), block = static_dims(experts), w.block_of_whole_bytes()
        sizes = w.sizes(size, block)
        n, blocks = sizes["N"], sizes["K"] // block
        all_experts = w.stored(op, block, ((*w.arrangement.grid(*w.grid), -1),) * 3)
        shapes = ((n, blocks, block * w.bits // 8), (n, blocks), (n, -1))
        weight = [
            reshaped(op, op.Gather(stored, experts, axis=1), shape, "blocks")
            for stored, shape in zip(all_experts, shapes, strict=False)
        ]
        y = self.product(op, x, weight, sizes)
        return biased(op, y, self.bias, w.arrangement, experts)
