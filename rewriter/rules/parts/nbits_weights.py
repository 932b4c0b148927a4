"""A stored weight behind DequantizeLinear, as MatMulNBits stores it.

The integers stay as they are, in another order; a scale that is wider than MatMulNBits' blocks (at
most 256) is repeated. A zero point that is absent means 0 in DequantizeLinear and 2^(bits-1) in
MatMulNBits, so signed codes move up by 2^(bits-1) and need none; unsigned codes carry theirs (D25
of the public reports).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rules.parts.quantized_weights import (
    BITS,
    Array,
    as_matrix,
    codes_of,
    grouping,
    zero_points,
)
from rewriter.site import Site
from rewriter.streamed import Rows, StreamedTensor
from rewriter.tape import Tape

_SIZES = (256, 128, 64, 32, 16)
"""Blocks that MatMulNBits may have."""
_PIECE = 1 << 19
"""Bytes of codes made at a time: unpacked and transposed they take many times that."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Inputs and sizes of a MatMulNBits for one weight.

    Attributes:
        inputs: codes, scales, and zero points unless they are the middle.
        sizes: K, N, bits and block_size.
    """

    inputs: tuple[ir.Value, ...]
    sizes: dict[str, int]


def block_for(site: Site, k: int, group: int) -> int:
    """The largest block of MatMulNBits that scales over ``group`` rows of K can be given in."""
    fits = [b for b in _SIZES if group % b == 0]
    if not fits and group >= k:
        return 32  # one scale for all of K: the last block is not full
    site.require(bool(fits), f"block_size {group} is no multiple of 16")
    return fits[0]


def blocks_of(op: Tape, site: Site, *, rows: bool) -> Blocks:
    """A weight as MatMulNBits stores it.

    Args:
        op: gets the constants, which are made when they are saved.
        site: the DequantizeLinear.
        rows: it is stored as (N, K), dims of 1 behind, not as (K, N).

    Raises:
        Refusal: there is no such form, with the reason.
    """
    x, given = codes_of(site)
    stored = as_matrix(given)
    site.ignore("output_dtype")  # the caller compares the type of what comes out
    kind = stored.dtype.name.lower()
    site.require(len(stored.shape) == 2, "the weight is no matrix")
    site.require(kind in BITS, f"weights of {kind} have no MatMulNBits form")
    shape, bits, k_axis = given.shape.numpy(), BITS[kind], int(rows)
    group, scale = grouping(site, k_axis, shape), site.input("x_scale")
    points = zero_points(site, site.optional("x_zero_point"), kind, bits)
    return _blocks(op, site, (x, stored), scale, points, rows=rows, group=group)


def blocks_of_integers(
    op: Tape, site: Site, x: ir.Value, scale: ir.Value, point: ir.Value | None
) -> Blocks:
    """The same of the integers (K, N) of an integer product, scaled for all or per column.

    Raises:
        Refusal: they are not stored, or no matrix of bytes.
    """
    stored = site.stored(x, "the weight")
    kind = stored.dtype.name.lower()
    site.require(len(stored.shape) == 2, "the weight is no matrix")
    site.require(BITS.get(kind) == 8, f"weights of {kind} are no bytes")
    k, n = stored.shape.numpy()
    site.require(
        site.stored(scale, "the scale").size in {1, n}, "the scales are not one per column"
    )
    points = zero_points(site, point, kind, 8)
    return _blocks(op, site, (x, stored), scale, points, rows=False, group=k)


def _blocks(
    op: Tape,
    site: Site,
    codes_from: tuple[ir.Value, ir.TensorProtocol],
    scale: ir.Value,
    points: Array | None,
    *,
    rows: bool,
    group: int,
) -> Blocks:
    (x, stored), k_axis = codes_from, int(rows)
    bits, shape = BITS[stored.dtype.name.lower()], stored.shape.numpy()
    k, n = shape[k_axis], shape[1 - k_axis]
    block = block_for(site, k, group)
    blocks, groups = -(-k // block), -(-k // group)
    given = site.stored(scale, "the scale")

    def spread(array: Array) -> Array:
        """Per tensor, channel or group to (N, K/block)."""
        if array.ndim == 2 and not rows:
            array = array.T
        each = array.reshape(1, 1) if array.size == 1 else array.reshape(-1, groups)
        per_group = np.broadcast_to(each, (n, groups))
        return np.repeat(per_group, -(-group // block), axis=1)[:, :blocks]

    def codes() -> Rows:
        part = packing.columns(stored, rows=rows)
        return lambda start, stop: packing.matrix_to_blocks(part(start, stop), block, bits)

    def scales() -> ir.TensorProtocol:
        return ir.tensor(np.ascontiguousarray(spread(given.numpy())), dtype=given.dtype)

    packed = (n, blocks, block * bits // 8)
    inputs = [
        op.weight(
            ("blocks", x, block, rows),
            StreamedTensor(codes, ir.DataType.UINT8, packed, n, piece=_PIECE),
            "codes",
        ),
        op.weight(
            ("scales", scale, blocks, n, rows),
            ir.LazyTensor(scales, given.dtype, ir.Shape((n, blocks))),
            "scales",
        ),
    ]
    if points is not None:
        inputs.append(
            op.const(packing.zero_points_to_blocks(spread(points).T, bits), name="points")
        )
    return Blocks(tuple(inputs), {"K": k, "N": n, "bits": bits, "block_size": block})
