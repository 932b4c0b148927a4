"""What a format hands to the builder: weights by name, left on disk until they are written.

Names are those of GGUF (``token_embd.weight``, ``blk.0.attn_q.weight``), the one vocabulary that
covers all architectures; a format with other names maps them. Every weight W is (N, K), rows of
outputs, for y = x·Wᵀ; stacked experts are (E, N, K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Float:
    """A weight stored as floats.

    Attributes:
        tensor: float32, float16 or bfloat16, of the weight's shape.
    """

    tensor: ir.TensorProtocol

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, K), (E, N, K), or (N,) of a norm or bias."""
        return tuple(int(d) for d in self.tensor.shape.numpy())


@dataclass(frozen=True, slots=True)
class Quantized:
    """A weight stored as integers with a scale per block of K; the value is exact:
    ``W[n, k] = scales[n, k // block] * (codes[n, k] - zero) - minimums[n, k // block]``.

    Attributes:
        shape: (N, K) or (E, N, K).
        bits: 2, 4 or 8 per code.
        block: codes per scale along K, a power of two from 16.
        zero: the zero point, one for all; 2^(bits-1) where there are no minimums.
        codes: uint8 (..., N, K/block, block·bits/8) in MatMulNBits' layout, low bits first.
        scales: float32 (..., N, K/block).
        minimums: the same, or ``None`` where the format has none.
        zeros: uint8 (..., N, K/block), a zero point for each block in place of ``zero``.
    """

    shape: tuple[int, ...]
    bits: int
    block: int
    zero: int
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    minimums: ir.TensorProtocol | None = None
    zeros: ir.TensorProtocol | None = None


Weight = Float | Quantized


class Weights(Protocol):
    """All weights of one checkpoint."""

    def __contains__(self, name: str) -> bool:
        """Whether there is a weight of a name."""
        ...

    def __getitem__(self, name: str) -> Weight:
        """A weight.

        Raises:
            BadInput: there is none of that name; the message names file and weight.
        """
        ...
