"""Numpy kernels shared by the block formats: nibbles, fields of records, runs of 32 codes.

ggml keeps the codes of a run apart (element i in the low nibble of byte i, element i + 16 or a
whole run later in the high one), MatMulNBits keeps neighbours in one byte. All kernels work on
arrays that are long and contiguous, since numpy is slow on rows of a few bytes; runs are moved
as elements of 8, 16 or 32 bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

LOW = np.uint8(15)


def field(blocks: Bytes, start: int, stop: int) -> Bytes:
    """Bytes ``start`` to ``stop`` of every record (n, size), contiguous."""
    return np.ascontiguousarray(blocks[:, start:stop])


def halves(blocks: Bytes, start: int) -> Floats:
    """The float16 at a byte of every record as float32 (n, 1); float32 holds it exactly."""
    return blocks[:, start : start + 2].view(np.float16).astype(np.float32)


def runs(blocks: Bytes, start: int, count: int, size: int = 32) -> Bytes:
    """``count`` runs of bytes of every record, run by run: (count, n, size)."""
    records = np.empty((count, len(blocks), size), np.uint8)
    for i in range(count):
        records[i] = blocks[:, start + i * size : start + (i + 1) * size]
    return records


def interleaved(parts: Bytes) -> Bytes:
    """Runs (count, n, size), run by run, as records again: (n, count · size)."""
    count, n, size = parts.shape
    run = np.dtype((np.void, size)) if size > 8 else np.dtype(f"u{size}")
    records: Bytes = np.ascontiguousarray(parts.view(run)[..., 0].T).view(np.uint8)
    return records.reshape(n, count * size)


def paired(codes: Bytes) -> Bytes:
    """Codes below 16, neighbours into one byte, the first one low: half the last axis."""
    words = codes.view(np.uint16)
    return (words | (words >> np.uint16(4))).astype(np.uint8)


def low_pairs(packed: Bytes) -> Bytes:
    """The low nibbles of neighbouring bytes in one byte: half the last axis."""
    words = packed.view(np.uint16)
    return ((words & np.uint16(0x0F)) | ((words >> np.uint16(4)) & np.uint16(0xF0))).astype(
        np.uint8
    )


def high_pairs(packed: Bytes) -> Bytes:
    """The high nibbles of neighbouring bytes in one byte: half the last axis."""
    words = packed.view(np.uint16)
    return (
        ((words >> np.uint16(4)) & np.uint16(0x0F)) | ((words >> np.uint16(8)) & np.uint16(0xF0))
    ).astype(np.uint8)


def quads(codes: Bytes) -> Bytes:
    """Codes below 4, four neighbours into one byte, the first one lowest: a quarter."""
    words = codes.view(np.uint32)
    joined = words | (words >> np.uint32(6))  # four bits in every second byte
    packed: Bytes = (joined | (joined >> np.uint32(12))).astype(np.uint8)
    return packed
