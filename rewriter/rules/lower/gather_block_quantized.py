"""com.microsoft GatherBlockQuantized to a dequantized table, Gather, and products.

y[i, k] = scales[i, k/b] · (codes[i, k] - zero_points[i, k/b]) for row i of a table in blocks of b
along another axis than rows are taken along. Without zero points uint8 data means 2^(bits-1),
int4 and uint4 data 0 (D24; ORT's ``gather_block_quantized.cc``). A last block that is not full is
filled with zeros, which are cut off again.

The codes are dequantized whole with scale 1 and zero point 0, then rows are gathered: this is
what HTP runs, where a Gather of integers stays on the CPU (measured/README.md, section H), and
whole numbers up to 255 are exact in fp16. Unsigned data is moved down by the middle, so that its
codes are signed and the default zero point is nothing to subtract; the zero point of the
DequantizeLinear is written out, because one that is left out is read as unsigned (trap 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.facts import constant
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape

_SIGNED = {2: ir.DataType.INT4, 4: ir.DataType.INT4, 8: ir.DataType.INT8}
"""2-bit codes take the 4-bit type: their own needs opset 25, and HTP misreads it."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """How the integers of a table are stored.

    Attributes:
        bits: of one code.
        dtype: of the codes that are emitted.
        packed: uint8 holds ``8 / bits`` codes a byte, low bits first.
    """

    bits: int
    dtype: ir.DataType
    packed: bool


def _codes(site: Site, data: ir.Value) -> _Codes:
    bits = site.integer("bits")
    if data.dtype in {ir.DataType.INT4, ir.DataType.UINT4}:
        return _Codes(4, data.dtype, packed=False)
    site.require(data.dtype == ir.DataType.UINT8, f"data of {data.dtype} is not handled")
    site.require(bits in _SIGNED, f"codes of {bits} bits are not handled")
    return _Codes(bits, _SIGNED[bits], packed=True)


def _axes(site: Site, rank: int) -> tuple[int, int]:
    """The axes that rows are taken along and that blocks run along."""
    gather, quantize = (site.integer(name) % rank for name in ("gather_axis", "quantize_axis"))
    site.require(gather != quantize, f"rows along axis {gather}, which the blocks run along")
    return gather, quantize


def _source(value: ir.Value) -> ir.Value:
    """What a value is read from through Reshape: the tied table of genai is its head's weight."""
    producer = value.producer()
    while constant(value) is None and producer is not None and producer.op_type == "Reshape":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
        producer = value.producer()
    return value


def _table(
    op: Tape, site: Site, value: ir.Value, kind: _Codes, shape: tuple[int, ...], what: str
) -> ir.Value:
    """A stored table of a shape as whole numbers in float32, zeros behind where it is smaller."""
    source = _source(value)
    stored = site.stored(source, what)
    own = site.shape(value, what)
    if kind.packed:  # a byte that is not full holds zeros behind
        own = (*own[:-1], min(own[-1] * (8 // kind.bits), shape[-1]))

    def codes() -> ir.TensorProtocol:
        array = stored.numpy().reshape(*own[:-1], -1) if kind.packed else stored.numpy()
        if kind.packed and array.shape[-1] * 8 == shape[-1] * kind.bits and kind.bits > 2:
            return packing.moved_by_half(array, kind.dtype, shape)
        if kind.packed:
            middle = 1 << (kind.bits - 1)
            array = packing.unpack_bits(array, kind.bits, own[-1]).astype(np.int16) - middle
        behind = [(0, whole - part) for whole, part in zip(shape, array.shape, strict=True)]
        return packing.integers(np.pad(array, behind), kind.dtype)

    def build() -> ir.Value:
        integers = value
        if source is not value or kind.packed or own != shape:
            lazy = ir.LazyTensor(codes, kind.dtype, ir.Shape(shape))
            integers = op.weight(("rows of codes", source, shape, kind), lazy, f"{what}_codes")
            _note_second_form(op, source, lazy)
        one = op.const(np.float32(1), name="one")
        return op.DequantizeLinear(integers, one, op.const(np.int8(0), kind.dtype, name="zero"))

    return op.once(("table", source, shape, kind), build)


def _note_second_form(op: Tape, source: ir.Value, codes: ir.TensorProtocol) -> None:
    """A table tied to the head stays packed for the head: the file holds it twice."""
    if len(source.uses()) > 1:
        kind = codes.dtype.name.lower()
        op.note(f"{source.name} is also stored as {kind} rows to look up: {codes.nbytes} bytes")


@lowers(
    "com.microsoft::GatherBlockQuantized",
    emits=("Cast", "DequantizeLinear", "Gather", "Mul", "Reshape", "Slice", "Sub", "Unsqueeze"),
    opset=21,
)
def gather_of_dequantized(op: Tape, site: Site) -> ir.Value:
    """(Gather(codes) - Gather(zero_points)) · Gather(scales), block by block."""
    data, indices, scales = (site.input(name) for name in ("data", "indices", "scales"))
    kind = _codes(site, data)
    dims = list(site.shape(data, "data"))
    gather, quantize = _axes(site, len(dims))
    if kind.packed:
        dims[-1] *= 8 // kind.bits
        last = site.shape(scales, "scales")[-1]
        site.require(quantize == len(dims) - 1 or last == dims[-1], "scales and data do not fit")
    block, dtype = site.integer("block_size"), scales.dtype
    site.require(dtype != ir.DataType.BFLOAT16, "bfloat16 has no kernel to check it with")
    site.require(block > 0, "a block_size of 0 is for FP8 and FP4 data")
    width, blocks = dims[quantize], -(-dims[quantize] // block)

    def along(size: int) -> tuple[int, ...]:
        return (*dims[:quantize], size, *dims[quantize + 1 :])

    def rows(table: ir.Value) -> ir.Value:
        found = op.Gather(table, indices, axis=gather)
        return found if found.dtype == dtype else op.Cast(found, to=dtype)

    site.require(site.shape(scales, "scales") == along(blocks), "the scales do not fit the data")
    inside = site.rank(indices, "indices") - 1 if gather < quantize else 0
    axis = quantize + inside
    rest = dims[quantize + 1 :]
    if gather > quantize:
        at = gather - quantize - 1
        rest[at : at + 1] = site.shape(indices, "indices")

    def per_block(x: ir.Value) -> ir.Value:
        return op.Unsqueeze(x, op.const(np.array([axis + 1], np.int64), name="within_block"))

    codes = rows(_table(op, site, data, kind, along(blocks * block), "data"))
    y = _reshape(op, codes, axis, (blocks, block, *rest))
    points = site.optional("zero_points")
    if points is not None:
        y = op.Sub(y, per_block(rows(_table(op, site, points, kind, along(blocks), "zero_points"))))
    y = _reshape(op, op.Mul(y, per_block(rows(scales))), axis, (blocks * block, *rest))
    if width != blocks * block:
        bounds = (op.const(np.array([i], np.int64), name="bound") for i in (0, width, axis))
        y = op.Slice(y, *bounds)
    return y


def _reshape(op: Tape, x: ir.Value, outer: int, last: Sequence[int]) -> ir.Value:
    """The outer dims as they are, whatever they are, and other last ones."""
    shape = np.array([0] * outer + list(last), np.int64)
    return op.Reshape(x, op.const(shape, name="blocks_shape"))
