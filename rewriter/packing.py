"""Exact integer formats of quantized weights, and moves between them that change no value.

Two layouts of a weight W (K, N) with blocks of ``b`` along K:

* *blocks*: MatMulNBits' ``B`` uint8 (N, K/b, b·bits/8), low bits first, codes unsigned;
* *matrix*: DequantizeLinear's ``x`` (K, N) of an ONNX integer type, scales (K/b, N).

Everything here maps whole arrays with numpy and is called when a tensor is saved, so a weight is
in memory only while it is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

_STRIP = 256
"""Columns that are transposed at a time: so many rows of bytes stay in the processor's cache."""


def unpack_bits(packed: Bytes, bits: int, count: int) -> Bytes:
    """Codes of the last axis, low bits first; ``count`` of them.

    >>> unpack_bits(np.array([0x21, 0x43], np.uint8), 4, 3)
    array([1, 2, 3], dtype=uint8)
    """
    if bits == 8:
        return packed[..., :count]
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)[..., :count]


def pack_bits(codes: Bytes, bits: int) -> Bytes:
    """The inverse: codes of the last axis into bytes, the last byte filled with zeros.

    >>> pack_bits(np.array([1, 2, 3], np.uint8), 4)
    array([33,  3], dtype=uint8)
    """
    if bits == 8:
        return codes
    per_byte = 8 // bits
    short = -codes.shape[-1] % per_byte
    if short:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, short)])
    groups = codes.reshape(*codes.shape[:-1], -1, per_byte)
    packed = groups[..., 0].copy()
    for i in range(1, per_byte):
        packed |= groups[..., i] << np.uint8(bits * i)
    return packed


def stored_bytes(tensor: ir.TensorProtocol) -> Bytes:
    """Bytes of a tensor as they are stored, mapped where they lie in a file.

    A tensor in a file would unpack types of less than a byte, and keep that with the model.
    """
    if isinstance(tensor, ir.ExternalTensor):
        return np.memmap(tensor.path, np.uint8, "r", tensor.offset or 0, (tensor.nbytes,))
    return np.frombuffer(tensor.tobytes(), np.uint8)


def columns(tensor: ir.TensorProtocol, *, rows: bool = False) -> Callable[[int, int], Array]:
    """Runs of columns of an integer matrix (K, N), the whole of which is never unpacked.

    Args:
        tensor: (K, N), or (N, K) with ``rows``.
        rows: its rows are what is meant.

    Returns:
        A function from ``start`` and ``stop`` to (K, stop - start), of the tensor's type; 4-bit
        codes come as uint8, signed ones moved up by 8.
    """
    n, k = (int(d) for d in tensor.shape.numpy())
    if tensor.dtype.bitwidth != 4 or k % 2:
        whole = tensor.numpy()
        whole = whole.T if rows else whole
        return lambda start, stop: whole[:, start:stop]
    packed = stored_bytes(tensor).reshape(n, k // 2)
    middle = np.uint8(8 if tensor.dtype.is_signed() else 0)

    def of_rows(start: int, stop: int) -> Array:
        return unpack_bits(packed[start:stop], 4, k).T ^ middle

    def of_columns(start: int, stop: int) -> Array:
        first = start // 2
        codes = unpack_bits(packed[:, first : (stop + 1) // 2], 4, stop - 2 * first)
        return codes[:, start - 2 * first :] ^ middle

    return of_rows if rows else of_columns


def matrix_to_blocks(matrix: Array, block: int, bits: int) -> Bytes:
    """A (K, N) integer matrix as unsigned codes in MatMulNBits' layout.

    Signed values are moved up by 2^(bits-1), which is the zero point MatMulNBits assumes.
    """
    k, n = matrix.shape
    unsigned = matrix.T
    if np.issubdtype(matrix.dtype, np.signedinteger) or matrix.dtype.name in {"int4", "int2"}:
        unsigned = unsigned.astype(np.int16) + (1 << (bits - 1))
    blocks = -(-k // block)
    unsigned = unsigned.astype(np.uint8)
    if blocks * block != k:
        unsigned = np.pad(unsigned, [(0, 0), (0, blocks * block - k)])
    return pack_bits(unsigned.reshape(n, blocks, block), bits)


def blocks_to_matrix(packed: Bytes, k: int, bits: int) -> Bytes:
    """MatMulNBits' layout as unsigned codes (K, N), in C order."""
    n = packed.shape[0]
    codes = unpack_bits(packed.reshape(n, -1), bits, k)
    return np.ascontiguousarray(codes.T)


def matrix_of_blocks(packed: Bytes, k: int, dtype: ir.DataType) -> ir.TensorProtocol:
    """MatMulNBits' layout as a (K, N) tensor of a type of its width; signed ones move by the half.

    An even number of 4-bit columns is transposed without unpacking it, so that hardly more than the
    result is in memory.
    """
    n, bits = packed.shape[0], dtype.bitwidth
    if bits != 4 or n % 2 or k % 2:
        codes = blocks_to_matrix(packed, k, bits)
        half = 1 << (bits - 1)
        return integers(codes.astype(np.int16) - half if dtype.is_signed() else codes, dtype)
    flat = packed.reshape(n, -1)[:, : k // 2]
    matrix = np.empty((k, n // 2), np.uint8)
    for start in range(0, n // 2, _STRIP):
        strip = slice(start, start + _STRIP)
        first, second = flat[0::2][strip], flat[1::2][strip]
        matrix[0::2, strip] = ((first & np.uint8(15)) | (second << np.uint8(4))).T
        matrix[1::2, strip] = ((first >> np.uint8(4)) | (second & np.uint8(240))).T
    if dtype.is_signed():
        return moved_by_half(matrix, dtype, (k, n))
    return ir.PackedTensor(matrix.reshape(-1), dtype, shape=ir.Shape((k, n)))


def moved_by_half(packed: Bytes, dtype: ir.DataType, shape: Sequence[int]) -> ir.TensorProtocol:
    """Unsigned codes of 4 or 8 bits, minus half their range, as signed ones: their top bits flip.

    No byte is unpacked, so every byte has to be full.
    """
    flipped = packed.reshape(-1) ^ np.uint8(0x88 if dtype.bitwidth == 4 else 0x80)
    if dtype.bitwidth == 4:
        return ir.PackedTensor(flipped, dtype, shape=ir.Shape(shape))
    return ir.tensor(flipped.view(np.int8).reshape(shape), dtype=dtype)


def zero_points_to_blocks(zero_points: Array, bits: int) -> Bytes:
    """DequantizeLinear's zero points (K/b, N) as MatMulNBits' packed uint8 (N, ·)."""
    codes = zero_points.T.astype(np.int16)
    if np.issubdtype(zero_points.dtype, np.signedinteger) or zero_points.dtype.name in {
        "int4",
        "int2",
    }:
        codes = codes + (1 << (bits - 1))
    return pack_bits(np.ascontiguousarray(codes.astype(np.uint8)), bits)


def zero_points_to_matrix(packed: Bytes, n: int, blocks: int, bits: int) -> Bytes:
    """MatMulNBits' packed zero points as codes (K/b, N)."""
    codes = unpack_bits(packed.reshape(n, -1), bits, blocks)
    return np.ascontiguousarray(codes.T)


def integers(codes: Array, dtype: ir.DataType) -> ir.TensorProtocol:
    """A tensor of an ONNX integer type; 4-bit types are stored packed."""
    if dtype.bitwidth == 4:
        flat = pack_bits(codes.astype(np.int8).view(np.uint8).reshape(-1) & np.uint8(15), 4)
        return ir.PackedTensor(flat, dtype, shape=ir.Shape(codes.shape))
    return ir.tensor(codes.astype(dtype.numpy()), dtype=dtype)
