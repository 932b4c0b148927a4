"""What MatMulNBits may have beyond its codes and scales, as ops around it.

W (K, N) = s·(q - z), per block b of K. A zero point z moves a weight by s·(z - z0) against the
middle z0 = 2^(bits-1) that is meant where none is given, equally within a block, hence

    A·W = A·s·(q - z0) + Σ_b (sum of A over the block b) · m_b,   m_b = -s_b·(z_b - z0)

which is exact but for the rounding of m_b. The middle is where HTP, which computes in fp16,
cancels least: weights of Q4_K's kind and inputs as after an RMS norm (K = 256 to 2048) give rms
errors of 0.04 to 0.07 % of the result's standard deviation; around the nearest integer of z 0.10
to 0.14 %; around 0 it is 0.21 to 0.39 %, and 3 to 7 % where all inputs are positive.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rules.parts.shorthand import axes, reshaped
from rewriter.site import Site
from rewriter.tape import Tape


def sizes(site: Site) -> tuple[int, int, int, int]:
    """(K, N, block_size, bits) of a MatMulNBits whose weight is laid out as the schema says.

    Raises:
        Refusal: it is prepacked, left out, or of bfloat16, with the reason.
    """
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    prepacked = site.integer("weight_prepacked")
    site.require(prepacked == 0, "prepacked weights have their own layout")
    codes = site.stored(site.input("B"), "B")
    site.require(codes.size > 0, "B is empty: the projection is left out")
    wide = site.input("A").dtype == ir.DataType.BFLOAT16
    site.require(not wide, "bfloat16 has no kernel that the result could be checked with")
    return k, n, block, bits


def in_order(op: Tape, site: Site) -> tuple[ir.Value, ir.Value]:
    """A and B without ``g_idx``: row k of W has the scale of block g_idx[k].

    Where the rows of a block lie apart, the columns of A and the codes are put in the order of
    their blocks, which changes no sum; a block that has not its ``block_size`` rows is refused,
    and so are zero points beside, which ONNX Runtime's kernel leaves out then.
    """
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    a, b, given = site.input("A"), site.input("B"), site.optional("g_idx")
    if given is None:
        return a, b
    site.require(bits == 4, f"g_idx of {bits}-bit codes: ONNX Runtime has no kernel that is right")
    alone = site.optional("zero_points") is None
    site.require(alone, "zero points beside g_idx: the schema uses them, ONNX Runtime does not")
    groups = site.constant(given, "g_idx").reshape(-1)[:k]
    own = np.arange(k) // block
    order = np.argsort(groups, kind="stable")
    fits = np.array_equal(groups[order], own)
    site.require(fits, f"g_idx gives a block another number of rows than {block}")
    if np.array_equal(groups, own):
        return a, b
    stored, blocks = site.stored(b, "B"), -(-k // block)
    shape = (n, blocks, block * bits // 8)

    def codes() -> ir.TensorProtocol:
        rows = packing.unpack_bits(stored.numpy().view(np.uint8).reshape(n, -1), bits, k)
        full = np.zeros((n, blocks * block), np.uint8)
        full[:, :k] = rows[:, order]
        return ir.tensor(packing.pack_bits(full, bits).reshape(shape))

    lazy = ir.LazyTensor(codes, ir.DataType.UINT8, ir.Shape(shape))
    columns = op.const(order.astype(np.int64), name="columns")
    ordered = op.Gather(a, columns, axis=site.rank(a, "A") - 1)
    return ordered, op.weight(("in order", b, given), lazy, "codes")


def float_zero_points(site: Site) -> ir.Value | None:
    """Zero points that are no packed integers."""
    given = site.optional("zero_points")
    return None if given is None or given.dtype == ir.DataType.UINT8 else given


def packed_zero_points(site: Site) -> ir.Value | None:
    """Zero points that are packed integers; those of one byte each are refused by name."""
    given = site.optional("zero_points")
    if given is None or given.dtype != ir.DataType.UINT8:
        return None
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    wanted = n * -(-(-(-k // block) * bits) // 8)
    size = site.stored(given, "zero_points").size
    site.require(size == wanted, f"{size} bytes of zero points are not packed into {wanted}")
    return given


def scaled_by_column(site: Site) -> bool:
    """Whether all blocks of a column have one scale, and one packed zero point if they have any."""
    n = site.integer("N")
    scales = site.constant(site.input("scales"), "scales").reshape(n, -1)
    points = packed_zero_points(site)
    equal = bool((scales == scales[:, :1]).all())
    if not equal or points is None:
        return equal and float_zero_points(site) is None
    codes = numbers(site, points)
    return bool((codes == codes[:, :1]).all())


def rebuilt(
    op: Tape, site: Site, inputs: Mapping[str, ir.Value | None], **attributes: int
) -> ir.Value:
    """The same node with some inputs and attributes in the place of its own."""
    names = ("A", "B", "scales", "zero_points", "g_idx", "bias")
    own = {name: site.optional(name) for name in names}
    given = list({**own, **inputs}.values())
    while given[-1] is None:
        given.pop()
    same = {name: site.attribute(name) for name in site.node.attributes}
    return op.emit("com.microsoft::MatMulNBits", given, {**same, **attributes})[0]


def numbers(site: Site, points: ir.Value) -> np.ndarray:
    """Zero points as float64 (N, K/block), packed or not."""
    k, n, block, bits = (site.integer(name) for name in ("K", "N", "block_size", "bits"))
    stored = site.constant(points, "zero_points")
    if points.dtype != ir.DataType.UINT8:
        return stored.astype(np.float64).reshape(n, -1)
    return packing.unpack_bits(stored.reshape(n, -1), bits, -(-k // block)).astype(np.float64)


def block_sums(op: Tape, site: Site, a: ir.Value, block: int) -> ir.Value:
    """Sums of A (..., K) over blocks that it fills, (..., K/block); one for all products of A."""
    *outer, k = site.shape(a, "A")

    def build() -> ir.Value:
        by_block = reshaped(op, a, (*outer, k // block, block), "blocks")
        return op.ReduceSum(by_block, axes(op, -1), keepdims=0)

    return op.once(("block sums", a, block), build)


def moved(op: Tape, site: Site, a: ir.Value, points: ir.Value) -> ir.Value:
    """Σ_b (sum of A over b)·m_b for any zero points, A (..., K) filling its blocks."""
    n, block, bits = (site.integer(name) for name in ("N", "block_size", "bits"))
    middle = 1 << (bits - 1)
    scales = site.constant(site.input("scales"), "scales").astype(np.float64).reshape(n, -1)
    rows = (-scales * (numbers(site, points) - middle)).T
    assert a.dtype is not None
    kind = a.dtype.name.lower()
    op.note(f"zero points z became sums of {kind}: s·({middle} - z), each rounded once")
    return op.MatMul(block_sums(op, site, a, block), op.const(rows, a.dtype, name="moved"))


def filled(op: Tape, site: Site, a: ir.Value, width: int) -> ir.Value:
    """A (..., K) with zeros behind, so that it fills the last block."""
    *outer, k = site.shape(a, "A")
    if k == width:
        return a
    rest = op.const(np.zeros((*outer, width - k), np.float32), a.dtype, name="rest")
    return op.Concat(a, rest, axis=-1)
