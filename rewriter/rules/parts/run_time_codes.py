"""A product with a packed weight that is known at run time only, in ops of the standard.

Codes of 2 and 4 bits come out of their bytes by arithmetic on small whole numbers, which is exact
in every float type: b = 64·c3 + 16·c2 + 4·c1 + c0, and floor(b / 4^i) drops the lowest of them.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.shorthand import axes, number, reshaped, sliced
from rewriter.tape import Tape

EMITS = (
    *("Cast", "Concat", "Floor", "MatMul", "Mul", "Reshape", "Slice", "Sub"),
    *("Transpose", "Unsqueeze"),
)
"""Everything that is built here."""


def dequantized_product(
    op: Tape, x: ir.Value, weight: list[ir.Value], sizes: dict[str, int]
) -> ir.Value:
    """Multiply x by W = s·(q - z), transposed, every code a float for the time of the product.

    Args:
        op: the tape.
        x: (..., K).
        weight: codes (N, K/b, b·bits/8), scales (N, K/b), and zero points packed along their
            rows unless they are 2^(bits-1), as MatMulNBits has them.
        sizes: ``K``, ``N``, ``bits`` and ``block_size``.
    """
    codes, scales, *points = weight
    k, n, bits, block = (sizes[name] for name in ("K", "N", "bits", "block_size"))
    loose = _loose(op, codes, bits, scales, (n, k // block, block))
    if points:
        (own,) = points
        width = static_dims(own)[-1] * 8 // bits
        row = _loose(op, own, bits, scales, (n, width))
        row = row if width == k // block else sliced(op, row, 0, k // block, 1)
        zero = op.Unsqueeze(row, axes(op, -1))
    else:
        zero = number(op, scales, 1 << (bits - 1))
    dense = op.Mul(op.Sub(loose, zero), op.Unsqueeze(scales, axes(op, -1)))
    return op.MatMul(x, op.Transpose(reshaped(op, dense, (n, k), "matrix"), perm=[1, 0]))


def _loose(
    op: Tape, packed: ir.Value, bits: int, like: ir.Value, shape: tuple[int, ...]
) -> ir.Value:
    """The codes in the bytes of ``packed``, low bits first, as floats of a shape."""
    rest, found = op.Cast(packed, to=like.dtype), []
    for _ in range(8 // bits - 1):
        above = op.Floor(op.Mul(rest, number(op, like, 2.0**-bits)))
        found.append(op.Sub(rest, op.Mul(above, number(op, like, 1 << bits))))
        rest = above
    if not found:
        return rest
    columns = [op.Unsqueeze(one, axes(op, -1)) for one in (*found, rest)]
    return reshaped(op, op.Concat(*columns, axis=-1), shape, "codes")
