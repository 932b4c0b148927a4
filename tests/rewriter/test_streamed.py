"""A streamed tensor writes the bytes of its rows, in pieces, and reads as one array."""

from __future__ import annotations

import io

import numpy as np
import onnx_ir as ir
import pytest

from rewriter import streamed
from rewriter.streamed import StreamedTensor


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(1000, dtype=np.float32).reshape(100, 10)
    asked: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> np.ndarray:
        asked.append((start, stop))
        return array[start:stop]

    monkeypatch.setattr(streamed, "_PIECE_BYTES", 400)
    tensor = StreamedTensor(lambda: rows, ir.DataType.FLOAT, (100, 10), 100)
    file = io.BytesIO()
    tensor.tofile(file)
    assert file.getvalue() == array.tobytes()
    assert asked[:2] == [(0, 10), (10, 20)]
    assert len(asked) == 10
    assert (tensor.numpy() == array).all()


def test_packed_types_read_unpacked() -> None:
    packed = np.array([[0x21], [0x43]], np.uint8)
    tensor = StreamedTensor(lambda: lambda a, b: packed[a:b], ir.DataType.UINT4, (2, 2), 2)
    assert tensor.numpy().tolist() == [[1, 2], [3, 4]]
    assert "UINT4" in repr(tensor)
