"""com.microsoft MatMulNBits with 2-bit codes as one with 4-bit codes, the same numbers.

OpenVINO misreads 2 bits before 2025.4, and ONNX has no 2-bit type before opset 25. A code c
becomes c + 6, because 4 bits mean 8 where 2 bits mean 2, and zero points move along.

Float zero points that are halves, 1.5 for one, are whole at half the scale: s·(c - z) =
s/2·(2c + 5 - (2z + 5)), where 1.5 becomes the 8 that is meant without zero points. On HTP that is
as exact as 2 bits with sums beside for inputs around 0, and 5 to 13 times as exact for positive
ones (rms 0.04 % against 0.2 to 0.5 % of the result's deviation, K = 256 and 2048).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts import nbits
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "com.microsoft::MatMulNBits",
    emits=("com.microsoft::MatMulNBits[bits=4]",),
    form="bits=2 & zero_points floating",
    order=-2,
)
def halves_as_integers(op: Tape, site: Site) -> ir.Value:
    """4-bit codes of twice the range, whose zero points are whole."""
    points = nbits.float_zero_points(site)
    assert points is not None
    twice = 2 * nbits.numbers(site, points) + 5
    whole = bool(np.all((twice == np.round(twice)) & (twice >= 0) & (twice < 16)))
    site.require(whole, "the zero points are no halves of integers")
    return _wider(op, site, 2, twice.astype(np.uint8))


@lowers(
    "com.microsoft::MatMulNBits",
    emits=(
        "com.microsoft::MatMulNBits[bits=4]", "Add", "Concat", "MatMul", "ReduceSum", "Reshape",
    ),
    form="bits=2",
    order=2,
    opset=13,
)  # fmt: skip
def four_bit_codes(op: Tape, site: Site) -> ir.Value:
    """The same weight in 4-bit codes; float zero points become sums beside."""
    floats = nbits.float_zero_points(site)
    if floats is not None:
        k, _, block, _ = nbits.sizes(site)
        nbits.in_order(op, site)  # refuses g_idx beside zero points
        y = _wider(op, site, 1, None)
        a = nbits.filled(op, site, site.input("A"), -(-k // block) * block)
        return op.Add(y, nbits.moved(op, site, a, floats))
    given = nbits.packed_zero_points(site)
    points = None if given is None else nbits.numbers(site, given).astype(np.uint8) + np.uint8(6)
    return _wider(op, site, 1, points)


def _wider(op: Tape, site: Site, factor: int, points: np.ndarray | None) -> ir.Value:
    """Codes times ``factor``, moved so that 2 (or 1.5) becomes 8, and scales over ``factor``."""
    k, n, block, _ = nbits.sizes(site)
    codes, scales = site.input("B"), site.input("scales")
    stored, blocks = site.stored(codes, "B"), -(-k // block)
    up = np.uint8({1: 6, 2: 5}[factor])

    def build() -> ir.TensorProtocol:
        rows = stored.numpy().view(np.uint8).reshape(n, blocks, -1)
        loose = packing.unpack_bits(rows, 2, block) * np.uint8(factor) + up
        return ir.tensor(packing.pack_bits(loose, 4))

    lazy = ir.LazyTensor(build, ir.DataType.UINT8, ir.Shape((n, blocks, block // 2)))
    op.note(f"2-bit weights are stored in 4 bits: {stored.nbytes} bytes more for {codes.name}")
    inputs: dict[str, ir.Value | None] = {
        "B": op.weight(("four bits", codes, factor), lazy, "codes"),
        "zero_points": None,
    }
    if factor != 1:
        smaller = site.constant(scales, "scales") / np.float32(factor)
        inputs["scales"] = op.const(smaller, scales.dtype, name="scales")
    if points is not None and not bool(np.all(points == 8)):
        inputs["zero_points"] = op.const(packing.pack_bits(points, 4), name="zero_points")
    return nbits.rebuilt(op, site, inputs, bits=4)
