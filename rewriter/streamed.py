"""Tensors that are computed in pieces while they are written: none is ever whole in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Rows = Callable[[int, int], npt.NDArray[Any]]
"""Gives rows ``start`` to ``stop`` as an array whose bytes are theirs, in C order."""

_PIECE_BYTES = 1 << 24
"""Bytes computed at a time: large enough for numpy, small beside any model."""


class StreamedTensor(ir.LazyTensor):
    """A tensor made from rows on demand.

    Args:
        begin: called when a pass over the tensor begins; what is read for the whole pass is read
            here, and kept no longer.
        dtype: element type as stored; types of less than a byte come packed from ``rows``.
        shape: of the whole.
        count: number of rows; any number that divides the bytes of the whole.
        name: of the tensor.
        piece: bytes computed at a time, where other than usual.
    """

    def __init__(
        self,
        begin: Callable[[], Rows],
        dtype: ir.DataType,
        shape: Sequence[int],
        count: int,
        name: str | None = None,
        piece: int = 0,
    ) -> None:
        super().__init__(self._whole, dtype, ir.Shape(shape), name=name)
        self._begin = begin
        self._count = count
        self._piece = piece

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Runs of rows, one after the other."""
        rows = self._begin()
        size = self._piece or _PIECE_BYTES
        step = max(1, size * self._count // max(self.nbytes, 1))
        for start in range(0, self._count, step):
            yield np.ascontiguousarray(rows(start, min(start + step, self._count)))

    def tofile(self, file: IO[bytes]) -> None:
        """Write the bytes, a piece at a time."""
        for piece in self.pieces():
            file.write(piece.reshape(-1).view(np.uint8).data)

    def _whole(self) -> ir.TensorProtocol:
        data = b"".join(piece.tobytes() for piece in self.pieces())
        if self.dtype.bitwidth < 8:
            return ir.PackedTensor(np.frombuffer(data, np.uint8), self.dtype, shape=self.shape)
        array = np.frombuffer(data, self.dtype.numpy()).reshape(self.shape.numpy())
        return ir.Tensor(array, dtype=self.dtype)

    def __repr__(self) -> str:
        return f"StreamedTensor<{self.dtype},{self.shape}>({self.name})"

    def rows(self, count: int) -> Rows | None:
        """Rows of the whole taken as so many, as arrays of elements; none if they cut its own."""
        if self._count % count or self.dtype.bitwidth < 8:
            return None
        rows, each, dtype = self._begin(), self._count // count, self.dtype.numpy()

        def joined(start: int, stop: int) -> npt.NDArray[Any]:
            own = np.ascontiguousarray(rows(start * each, stop * each))
            return own.reshape(-1).view(np.uint8).reshape(stop - start, -1).view(dtype)

        return joined


def rows_of(tensor: ir.TensorProtocol, count: int) -> Rows:
    """Runs of rows of a tensor that is seen as ``count`` of them; a streamed one is never whole."""
    found = tensor.rows(count) if isinstance(tensor, StreamedTensor) else None
    if found is not None:
        return found
    whole = tensor.numpy().reshape(count, -1)
    return lambda start, stop: whole[start:stop]
