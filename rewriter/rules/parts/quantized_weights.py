"""A stored weight behind DequantizeLinear, as MatMulNBits stores it.

W (K, N) = (x - zero_point)·scale with a scale per tensor, per column n, or per block of K. The
integers stay as they are, in another order; a scale that is wider than MatMulNBits' blocks (at
most 256) is repeated. A zero point that is absent means 0 in DequantizeLinear and 2^(bits-1) in
MatMulNBits, so signed codes move up by 2^(bits-1) and need none; unsigned codes carry theirs (D25
of the public reports).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.facts import constant
from rewriter.site import Site
from rewriter.streamed import Rows, StreamedTensor
from rewriter.tape import Tape

Array = npt.NDArray[Any]

BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_BLOCKS = (256, 128, 64, 32, 16)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Inputs and sizes of a MatMulNBits for one weight.

    Attributes:
        inputs: codes, scales, and zero points unless they are the middle.
        sizes: K, N, bits and block_size.
    """

    inputs: tuple[ir.Value, ...]
    sizes: dict[str, int]


def codes_of(site: Site) -> tuple[ir.Value, ir.TensorProtocol]:
    """The value and the tensor of a DequantizeLinear's ``x``, through a Cast of a constant.

    Raises:
        Refusal: it is not stored.
    """
    x = site.input("x")
    producer = x.producer()
    source = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
    stored = constant(source)
    if source is None or stored is None or stored.dtype != ir.DataType.UINT8:
        return x, site.stored(x, "the weight")
    site.require(x.dtype == ir.DataType.UINT4, f"a Cast of bytes to {x.dtype} is not handled")
    loose, shape = stored, ir.Shape(stored.shape.numpy())

    def narrowed() -> ir.TensorProtocol:
        return packing.integers(loose.numpy() & np.uint8(15), ir.DataType.UINT4)

    return source, ir.LazyTensor(narrowed, ir.DataType.UINT4, shape)


def grouping(site: Site, k_axis: int, shape: Sequence[int]) -> int:
    """Rows of K that share a scale: all of them, or a block.

    Raises:
        Refusal: the scales run along K itself, or their blocks along N.
    """
    scale = site.input("x_scale")
    block = site.integer("block_size", 0)
    if block:
        along_k = site.integer("axis", 1) % 2 == k_axis
        site.require(along_k, "the blocks run along N, not along K")
        return block
    if site.stored(scale, "the scale").size > 1:
        along_n = site.integer("axis", 1) % 2 != k_axis
        site.require(along_n, "the scales run along K, not along N")
    return shape[k_axis]


def block_for(site: Site, k: int, group: int) -> int:
    """The largest block of MatMulNBits that scales over ``group`` rows of K can be given in."""
    fits = [b for b in _BLOCKS if group % b == 0]
    if not fits and group >= k:
        return 32  # one scale for all of K: the last block is not full
    site.require(bool(fits), f"block_size {group} is no multiple of 16")
    return fits[0]


def blocks_of(op: Tape, site: Site, *, rows: bool) -> Blocks:
    """A weight as MatMulNBits stores it.

    Args:
        op: gets the constants, which are made when they are saved.
        site: the DequantizeLinear.
        rows: it is stored as (N, K), not as (K, N).

    Raises:
        Refusal: there is no such form, with the reason.
    """
    x, stored = codes_of(site)
    site.ignore("output_dtype")  # the caller compares the type of what comes out
    kind = stored.dtype.name.lower()
    site.require(len(stored.shape) == 2, "the weight is no matrix")
    site.require(kind in BITS, f"weights of {kind} have no MatMulNBits form")
    shape, bits, k_axis = stored.shape.numpy(), BITS[kind], int(rows)
    group, scale = grouping(site, k_axis, shape), site.input("x_scale")
    points = _zero_points(site, site.optional("x_zero_point"), kind, bits)
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
    points = _zero_points(site, point, kind, 8)
    return _blocks(op, site, (x, stored), scale, points, rows=False, group=k)


_PIECE = 1 << 19
"""Bytes of codes made at a time: unpacked and turned they take many times that."""


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


def _zero_points(site: Site, given: ir.Value | None, kind: str, bits: int) -> Array | None:
    """Unsigned zero points of the unsigned codes; ``None`` for the middle, which is assumed."""
    signed, middle = kind.startswith("int"), 1 << (bits - 1)
    if given is None:
        return None if signed else np.zeros((1, 1), np.uint8)
    points = site.constant(given, "the zero point").astype(np.int16) + (middle if signed else 0)
    return None if bool(np.all(points == middle)) else points.astype(np.uint8)
