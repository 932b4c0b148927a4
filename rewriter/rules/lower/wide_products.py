"""Products over more columns than a target takes, as a sum of narrower ones.

A·W = Σ_p A_p·W_p, where A_p are some columns of A and W_p the rows of W that they meet. Dense
mixtures of experts are that wide (experts times inner channels), the largest MLPs, and attention
over as many keys. HTP creates no session for a MatMulNBits of K from 32768 on before 2.5 and from
65536 on since, nor for some MatMuls between (evidence M13 and M2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.rules.parts import nbits
from rewriter.rules.parts.shorthand import sliced
from rewriter.site import Site
from rewriter.streamed import Rows, StreamedTensor, rows_of
from rewriter.tape import Tape

_MOST = 16384
"""Columns of a part: whole blocks and bytes of zero points, half of what every HTP takes."""


def _parts(width: int) -> list[tuple[int, int]]:
    return [(start, min(start + _MOST, width)) for start in range(0, width, _MOST)]


def _sum(op: Tape, products: Sequence[ir.Value]) -> ir.Value:
    total, *others = products
    for product in others:
        total = op.Add(total, product)
    return total


@lowers("MatMul", emits=("Add", "MatMul", "Slice"), form=f"A dim -1 > {_MOST}", opset=13)
def sum_of_matmuls(op: Tape, site: Site) -> ir.Value:
    """MatMul(A[..., :p], B[:p]) + MatMul(A[..., p:], B[p:]) + ..."""
    a, b = site.input("A"), site.input("B")
    axis, rank = site.rank(a, "A") - 1, site.rank(b, "B")
    width, stored = site.shape(a, "A")[-1], constant(b) if rank == 2 else None

    def product(start: int, end: int) -> ir.Value:
        def rows() -> ir.TensorProtocol:
            assert stored is not None
            return ir.tensor(np.ascontiguousarray(stored.numpy()[start:end]), dtype=stored.dtype)

        if stored is None:
            part = sliced(op, b, start, end, max(rank - 2, 0))
        else:
            shape = ir.Shape((end - start, int(stored.shape.numpy()[1])))
            lazy = ir.LazyTensor(rows, stored.dtype, shape)
            part = op.weight(("rows of", b, start, end), lazy, "rows")
        return op.MatMul(sliced(op, a, start, end, axis), part)

    return _sum(op, [product(*part) for part in _parts(width)])


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("Add", "Gather", "Slice", "com.microsoft::MatMulNBits"),
    form=f"A dim -1 > {_MOST}",
    order=2,
    opset=13,
)
def sum_of_matmul_nbits(op: Tape, site: Site) -> ir.Value:
    """The same of MatMulNBits, every block in one of the parts, and the bias added behind."""
    k, n, block, bits = nbits.sizes(site)
    nbits.packed_zero_points(site)
    a, codes = nbits.in_order(op, site)
    site.require(codes.dtype == ir.DataType.UINT8, f"codes of {codes.dtype} are not handled")
    scales, points, bias = site.input("scales"), site.optional("zero_points"), site.optional("bias")
    axis, level = site.rank(a, "A") - 1, site.attribute("accuracy_level")
    site.require(_MOST % block == 0, f"blocks of {block} do not divide {_MOST} columns")
    packed = points is not None and points.dtype == ir.DataType.UINT8

    def product(start: int, end: int) -> ir.Value:
        first, last = start // block, -(-end // block)

        def part(value: ir.Value, name: str, eighths: int) -> ir.Value:
            """The columns of (N, ...) that belong to the blocks, each so many elements / 8 long."""
            columns = slice(first * eighths // 8, -(-last * eighths // 8))
            stored, width = site.stored(value, name), columns.stop - columns.start
            tensor = StreamedTensor(
                lambda: _columns(stored, n, columns),
                stored.dtype,
                (n, last - first, width // (last - first)) if name == "codes" else (n, width),
                n,
            )
            return op.weight(("columns", value, start, end), tensor, name)

        given = [part(codes, "codes", block * bits), part(scales, "scales", 8)]
        if points is not None:
            given.append(part(points, "zero_points", bits if packed else 8))
        sizes = {"K": end - start, "N": n, "bits": bits, "block_size": block}
        x = sliced(op, a, start, end, axis)
        return op.ms("MatMulNBits", x, *given, **sizes, accuracy_level=level)

    y = _sum(op, [product(*part) for part in _parts(k)])
    return y if bias is None else op.Add(y, bias)


def _columns(tensor: ir.TensorProtocol, count: int, columns: slice) -> Rows:
    rows = rows_of(tensor, count)
    return lambda start, stop: rows(start, stop)[:, columns]
