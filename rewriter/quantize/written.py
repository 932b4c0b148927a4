"""A weight quantized into a file, and how far it is from what it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.output import disk
from rewriter.packing import pack_bits
from rewriter.quantize.kernels import Codes
from rewriter.quantize.matrices import Floats, Matrix

Quantize = Callable[[Floats, int], Codes]
"""Makes columns (K, n) integers of so many bits."""
_DTYPES = {
    np.dtype(np.uint8): ir.DataType.UINT8,
    np.dtype(np.float32): ir.DataType.FLOAT,
    np.dtype(np.float16): ir.DataType.FLOAT16,
}


@dataclass(frozen=True, slots=True)
class Form:
    """A weight as MatMulNBits stores it, in a file.

    Attributes:
        bits: of a code.
        block: of K.
        codes: (N, K/block, block·bits/8).
        scales: (N, K/block).
        points: packed zero points; ``None`` for the middle.
        rms: see :class:`~rewriter.quantize.spec.WeightError`.
        steps: likewise.
    """

    bits: int
    block: int
    codes: ir.TensorProtocol
    scales: ir.TensorProtocol
    points: ir.TensorProtocol | None
    rms: float
    steps: float


@dataclass(slots=True)
class _Tally:
    """Squares of a weight and of its error, each row k weighted, and the largest step."""

    importance: npt.NDArray[np.float64] | None
    off: float = 0.0
    whole: float = 0.0
    steps: float = 0.0
    finite: bool = field(default=True)

    def note(self, weight: Floats, codes: Codes, bits: int) -> None:
        rows = weight.T.astype(np.float32)
        error = codes.floats(weight.shape[0], bits) - rows
        self.off += self._squares(error)
        self.whole += self._squares(rows)
        blocks = codes.scales.shape[1]
        width = codes.codes.shape[2] * 8 // bits
        padded = np.zeros((len(rows), blocks * width), np.float32)
        padded[:, : rows.shape[1]] = np.abs(error)
        largest = padded.reshape(len(rows), blocks, width).max(axis=2)
        sizes = np.abs(codes.scales.astype(np.float32))
        steps = np.divide(largest, sizes, out=np.zeros_like(largest), where=sizes != 0)
        self.steps = max(self.steps, float(steps.max(initial=0.0)))

    def _squares(self, rows: npt.NDArray[np.float32]) -> float:
        by_channel = np.einsum("nk,nk->k", rows, rows, dtype=np.float64)
        if self.importance is not None:
            by_channel *= self.importance
        return float(by_channel.sum())

    @property
    def rms(self) -> float:
        """The relative error; NaN where the weight holds something that is no number."""
        return math.sqrt(self.off / self.whole) if self.whole else float(self.off > 0)


class Weights:
    """The file that quantized weights go to; a context that closes it.

    Args:
        folder: where it lies, as long as the tensors are used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Weights:
        with disk(self._folder):
            self._file = NamedTemporaryFile("wb", dir=self._folder, suffix=".data", delete=False)
        self._path = Path(self._file.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def made(
        self,
        matrix: Matrix,
        bits: int,
        quantize: Quantize,
        importance: npt.NDArray[np.float64] | None = None,
    ) -> Form:
        """Quantize a weight; its scales, but no more, are in memory at a time.

        Args:
            matrix: the weight.
            bits: of its codes.
            quantize: how.
            importance: of each row of the weight, for its error.

        Raises:
            OutOfResources: the disk is full.
        """
        start, tally = self._file.tell(), _Tally(importance)
        scales, points = [], []
        shape: tuple[int, ...] = ()
        for _, columns in matrix.strips():
            found = quantize(columns, bits)
            tally.note(columns, found, bits)
            with disk(self._path):
                self._file.write(found.codes.tobytes())
            shape = found.codes.shape
            scales.append(found.scales)
            if found.points is not None:
                points.append(pack_bits(found.points, bits))
        return Form(
            bits,
            shape[2] * 8 // bits,
            self._tensor(start, np.dtype(np.uint8), (matrix.n, *shape[1:])),
            self._stored(np.concatenate(scales)),
            self._stored(np.concatenate(points)) if points else None,
            tally.rms,
            tally.steps,
        )

    def forget(self, form: Form) -> None:
        """Take the last one back."""
        assert isinstance(form.codes, ir.ExternalTensor)
        self._file.seek(form.codes.offset or 0)
        self._file.truncate()

    def flush(self) -> None:
        """Let the tensors be read."""
        with disk(self._path):
            self._file.flush()

    def _stored(self, array: npt.NDArray[Any]) -> ir.ExternalTensor:
        start = self._file.tell()
        with disk(self._path):
            self._file.write(array.tobytes())
        return self._tensor(start, array.dtype, array.shape)

    def _tensor(
        self, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> ir.ExternalTensor:
        return ir.ExternalTensor(
            self._path.name,
            start,
            self._file.tell() - start,
            _DTYPES[dtype],
            shape=ir.Shape(shape),
            name="",
            base_dir=self._path.parent,
        )
