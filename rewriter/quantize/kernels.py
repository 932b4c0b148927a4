"""Integers for floats: ONNX Runtime's quantizers in a child process, and one scale per column.

Every form is that of MatMulNBits: codes (N, K/b, b·bits/8), scales (N, K/b), packed zero points or
none, which means the middle code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.packing import Bytes, pack_bits, unpack_bits
from rewriter.quantize.matrices import Floats
from rewriter.runtime.served import Served

WORKER = Path(__file__).parent.parent / "runtime" / "quantize_worker.py"
BLOCK = 32
_WIDEST = 256
"""The largest block that MatMulNBits may have."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Columns of a weight in integers.

    Attributes:
        codes: packed (n, K/b, b·bits/8).
        scales: (n, K/b), of the type of the weight.
        points: zero points (n, K/b), each its own byte; ``None`` for the middle.
    """

    codes: Bytes
    scales: npt.NDArray[Any]
    points: Bytes | None = None

    def floats(self, k: int, bits: int) -> npt.NDArray[np.float32]:
        """The weight that they mean, (n, K)."""
        n, _, packed = self.codes.shape
        codes = unpack_bits(self.codes, bits, packed * 8 // bits).astype(np.float32)
        middle: Any = np.float32(1 << (bits - 1))
        points = middle if self.points is None else self.points.astype(np.float32)[..., None]
        values = (codes - points) * self.scales.astype(np.float32)[..., None]
        whole: npt.NDArray[np.float32] = values.reshape(n, -1)[:, :k]
        return whole


class Quantizers(Served):
    """ONNX Runtime's quantizers; a context that starts their child and ends it."""

    def __init__(self, time_limit: float = 600) -> None:
        super().__init__(WORKER, "cpu", time_limit=time_limit)

    def quantized(self, weight: Floats, method: str, bits: int) -> Codes:
        """Columns (K, n) in blocks of 32.

        Raises:
            RuntimeFault: onnxruntime is not installed, or fails.
        """
        head = {"method": method, "bits": bits, "block": BLOCK}
        _, found = self.ask(head, {"weight": weight})
        if "loose" not in found:
            return Codes(found["codes"], found["scales"])
        return Codes(pack_bits(found["loose"], bits), found["scales"], found["points"])


def channel_block(k: int) -> int:
    """The block in which the scale of a whole column is repeated: few repeats, all blocks full."""
    return next((b for b in (_WIDEST, 128, 64, BLOCK, 16) if k % b == 0), BLOCK)


def by_channel(weight: Floats, bits: int) -> Codes:
    """Columns (K, n), each with one scale, around the middle.

    The smallest scale that reaches both ends. It is positive: HTP misreads a negative scale of a
    channel where activations are quantized, though not those of blocks, as ONNX Runtime makes them.
    """
    k, n = weight.shape
    block, middle = channel_block(k), 1 << (bits - 1)
    blocks = -(-k // block)
    columns = np.zeros((n, blocks * block), np.float32)
    columns[:, :k] = weight.T
    highest, lowest = columns.max(axis=1), columns.min(axis=1)
    scales = np.maximum(highest / np.float32(middle - 1), -lowest / np.float32(middle))[:, None]
    scales = scales.astype(weight.dtype)
    wide = scales.astype(np.float32)
    steps = np.divide(columns, wide, out=np.zeros_like(columns), where=wide != 0)
    codes = np.clip(np.rint(steps) + middle, 0, 2 * middle - 1).astype(np.uint8)
    return Codes(
        pack_bits(codes.reshape(n, blocks, block), bits), np.repeat(scales, blocks, axis=1)
    )
