"""com.microsoft GatherBlockQuantized to a dequantized table, Gather, and products.

y[i, k] = scales[i, k/b] · (codes[i, k] - zero_points[i, k/b]) for row i of a table in blocks of b
along its last axis. Without zero points uint8 data means 2^(bits-1), int4 and uint4 data 0 (D24;
ORT's ``gather_block_quantized.cc``).

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

_SIGNED = {4: ir.DataType.INT4, 8: ir.DataType.INT8}


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
    site.require(bits in _SIGNED, f"{bits}-bit codes have no ONNX type at opset {site.opset}")
    return _Codes(bits, _SIGNED[bits], packed=True)


def _axes(site: Site, rank: int) -> None:
    for name, wanted in (("gather_axis", 0), ("quantize_axis", rank - 1)):
        axis = site.integer(name)
        site.require(axis % rank == wanted, f"{name}={axis} of rank {rank} is not handled")


def _source(value: ir.Value) -> ir.Value:
    """What a value is read from through Reshape: the tied table of genai is its head's weight."""
    producer = value.producer()
    while constant(value) is None and producer is not None and producer.op_type == "Reshape":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
        producer = value.producer()
    return value


def _table(op: Tape, site: Site, value: ir.Value, kind: _Codes, count: int, what: str) -> ir.Value:
    """A stored table (rows, ..., count) as whole numbers in float32."""
    source = _source(value)
    stored = site.stored(source, what)
    shape = (*site.shape(value, what)[:-1], count)

    def codes() -> ir.TensorProtocol:
        array = stored.numpy().reshape(*shape[:-1], -1)
        if kind.packed and array.shape[-1] * 8 == count * kind.bits:
            return packing.moved_by_half(array, kind.dtype, shape)
        if kind.packed:
            middle = 1 << (kind.bits - 1)
            array = packing.unpack_bits(array, kind.bits, count).astype(np.int16) - middle
        return packing.integers(array, kind.dtype)

    def build() -> ir.Value:
        integers = value
        if source is not value or kind.packed:
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
    emits=("Cast", "DequantizeLinear", "Gather", "Mul", "Reshape", "Sub", "Unsqueeze"),
    opset=21,
)
def gather_of_dequantized(op: Tape, site: Site) -> ir.Value:
    """(Gather(codes) - Gather(zero_points)) · Gather(scales), block by block."""
    data, indices, scales = (site.input(name) for name in ("data", "indices", "scales"))
    kind = _codes(site, data)
    shape = site.shape(data, "data")
    _axes(site, len(shape))
    block, width = site.integer("block_size"), shape[-1] * (8 // kind.bits if kind.packed else 1)
    blocks = width // block
    site.require(blocks * block == width, f"{width} columns do not fill the last block of {block}")
    dtype = scales.dtype

    def rows(table: ir.Value) -> ir.Value:
        found = op.Gather(table, indices, axis=0)
        return found if found.dtype == dtype else op.Cast(found, to=dtype)

    def per_block(x: ir.Value) -> ir.Value:
        return op.Unsqueeze(x, op.const(np.array([-1], np.int64), name="within_block"))

    outer = site.rank(indices, "indices") + len(shape) - 2
    y = _reshape(op, rows(_table(op, site, data, kind, width, "data")), outer, (blocks, block))
    points = site.optional("zero_points")
    if points is not None:
        y = op.Sub(y, per_block(rows(_table(op, site, points, kind, blocks, "zero_points"))))
    return _reshape(op, op.Mul(y, per_block(rows(scales))), outer, (width,))


def _reshape(op: Tape, x: ir.Value, outer: int, last: Sequence[int]) -> ir.Value:
    """The outer dims as they are, whatever they are, and other last ones."""
    shape = np.array([0] * outer + list(last), np.int64)
    return op.Reshape(x, op.const(shape, name="blocks_shape"))
