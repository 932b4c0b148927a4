"""What MatMulNBits may have beyond its codes and scales, as ops around it.

W (K, N) = s·(q - z), per block b of K. A float zero point z moves a weight by s·(z - z0) for the
middle z0 = 2^(bits-1) that is meant where none is given, equally within a block, hence

    A·W = A·s·(q - z0) + Σ_b (sum of A over the block b) · m_b,   m_b = -s_b·(z_b - z0)

which is exact, and small where z is near the middle (measured/README.md, section F).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.site import Site
from rewriter.tape import Tape


def require_trivial_groups(site: Site, k: int, block: int) -> None:
    """Refuse a ``g_idx`` that gives any row of K another block than its own."""
    given = site.optional("g_idx")
    if given is None:
        return
    groups = site.constant(given, "g_idx").reshape(-1)[:k]
    own = np.arange(k) // block
    site.require(np.array_equal(groups, own), "g_idx gives rows of the weight to other blocks")


def float_zero_points(site: Site) -> ir.Value | None:
    """Zero points that are no packed integers."""
    given = site.optional("zero_points")
    return None if given is None or given.dtype == ir.DataType.UINT8 else given


def moved(op: Tape, site: Site, a: ir.Value, points: ir.Value) -> ir.Value:
    """Σ_b (sum of A over b)·m_b for float zero points, A (..., K) filling its blocks."""
    n, block, bits = (site.integer(name) for name in ("N", "block_size", "bits"))
    *outer, k = site.shape(a, "A")
    scales = site.constant(site.input("scales"), "scales").astype(np.float64).reshape(n, -1)
    offsets = site.constant(points, "zero_points").astype(np.float64).reshape(n, -1)
    offsets = offsets - (1 << (bits - 1))
    shape = np.array([*outer, k // block, block], np.int64)
    by_block = op.Reshape(a, op.const(shape, name="blocks"))
    axes = op.const(np.array([-1], np.int64), name="axes")
    sums = op.ReduceSum(by_block, axes, keepdims=0)
    return op.MatMul(sums, op.const((-scales * offsets).T, a.dtype, name="moved"))


def filled(op: Tape, site: Site, a: ir.Value, width: int) -> ir.Value:
    """A (..., K) with zeros behind, so that it fills the last block."""
    *outer, k = site.shape(a, "A")
    if k == width:
        return a
    rest = op.const(np.zeros((*outer, width - k), np.float32), a.dtype, name="rest")
    return op.Concat(a, rest, axis=-1)
