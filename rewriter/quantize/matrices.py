"""A stored weight as the matrix (K, N) of a product, a strip of columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import attributes_of, constant, op_of, present
from rewriter.packing import unpack_bits
from rewriter.streamed import rows_of

Floats = npt.NDArray[Any]
"""Of float32, or of float16 where the graph computes in it."""
Columns = Callable[[int, int], Floats]
"""Gives columns ``start`` to ``stop`` of a weight as (K, stop - start)."""
_STRIP = 1 << 22
"""Values of a strip: so many are floats at a time."""
_MATRIX = 2


@dataclass(frozen=True)
class Matrix:
    """A weight W (K, N) in floats.

    Attributes:
        value: where it is stored.
        rows: it is stored as (N, K).
        k: rows that a product sums over.
        n: columns.
        dtype: of what it is multiplied with.
        begin: called when a pass over the weight begins.
    """

    value: ir.Value
    rows: bool
    k: int
    n: int
    dtype: ir.DataType
    begin: Callable[[], Columns]

    @property
    def name(self) -> str:
        """Name of the weight."""
        return self.value.name or ""

    def strips(self) -> Iterator[tuple[int, Floats]]:
        """Runs of columns with the number of their first."""
        step, columns = max(1, _STRIP // self.k), self.begin()
        for start in range(0, self.n, step):
            yield start, columns(start, min(start + step, self.n))


def stored_behind(value: ir.Value | None) -> tuple[ir.Value, bool] | None:
    """The constant that Cast and Transpose make a matrix of, and whether it is the transposed."""
    turned = False
    while value is not None and constant(value) is None:
        producer = value.producer()
        if producer is None or producer.op_type not in {"Cast", "Transpose"} or producer.domain:
            return None
        if producer.op_type == "Transpose":
            perm = producer.attributes.get("perm")
            if perm is not None and list(perm.as_ints()) != [1, 0]:
                return None
            turned = not turned
        value = producer.inputs[0]
    return None if value is None else (value, turned)


def float_matrix(value: ir.Value | None, *, rows: bool) -> Matrix | None:
    """A weight of a product; nothing where it is computed, or no matrix of floats.

    Args:
        value: as the product reads it: (K, N), or (N, K, 1, ...) with ``rows``.
        rows: the latter.
    """
    found = stored_behind(value)
    if value is None or found is None or value.dtype is None:
        return None
    source, turned = found
    stored = constant(source)
    assert stored is not None
    shape = tuple(stored.shape.numpy())
    if len(shape) < _MATRIX or any(d != 1 for d in shape[_MATRIX:]):
        return None
    if not stored.dtype.is_floating_point() or stored.dtype.bitwidth < 16 or 0 in shape:
        return None
    rows ^= turned
    n, k = shape[:_MATRIX] if rows else shape[1::-1]
    return Matrix(source, rows, k, n, value.dtype, _columns(stored, n, value.dtype, rows=rows))


def _columns(
    stored: ir.TensorProtocol, n: int, dtype: ir.DataType, *, rows: bool
) -> Callable[[], Columns]:
    kind = np.float16 if dtype == ir.DataType.FLOAT16 else np.float32

    def begin() -> Columns:
        if rows:
            part = rows_of(stored, n)
            return lambda start, stop: np.ascontiguousarray(part(start, stop).T, kind)
        whole = stored.numpy().reshape(-1, n)
        return lambda start, stop: np.ascontiguousarray(whole[:, start:stop], kind)

    return begin


def dequantized_matrix(node: ir.Node) -> Matrix | None:
    """The floats that the weight of a MatMulNBits in blocks means; nothing of another node."""
    if op_of(node) != "com.microsoft::MatMulNBits":
        return None
    given = attributes_of(node, 1)
    k, n, bits, block = (int(given[name]) for name in ("K", "N", "bits", "block_size"))
    _, value, scale, *rest = (*node.inputs, None, None)
    points, groups = rest[:2]
    codes, scales, zeros = (constant(one) for one in (value, scale, points))
    plain = not given["weight_prepacked"] and not present(groups)
    stored = value is not None and codes is not None and scales is not None
    whole = not present(points) or (zeros is not None and zeros.dtype == ir.DataType.UINT8)
    if not (plain and stored and whole) or node.inputs[0] is None or node.inputs[0].dtype is None:
        return None
    assert value is not None
    assert codes is not None
    assert scales is not None
    blocks = -(-k // block)

    def begin() -> Columns:
        packed, sizes = codes.numpy().reshape(n, blocks, -1), scales.numpy().reshape(n, blocks)
        middle = np.full((n, 1), 1 << (bits - 1), np.uint8)
        moved = middle if zeros is None else unpack_bits(zeros.numpy().reshape(n, -1), bits, blocks)

        def part(start: int, stop: int) -> Floats:
            loose = unpack_bits(packed[start:stop], bits, block).astype(np.float32)
            floats = (loose - moved[start:stop, :, None]) * sizes[start:stop, :, None]
            columns = floats.reshape(stop - start, -1)[:, :k].T
            return np.ascontiguousarray(columns, sizes.dtype)

        return part

    return Matrix(value, True, k, n, node.inputs[0].dtype, begin)
