"""A stored table of codes, dequantized whole as integers in float32, so that rows can be gathered.

The codes are dequantized with scale 1 and zero point 0, then rows are gathered: this is what HTP
runs, where a Gather of integers stays on the CPU (measured/README.md, section H), and whole numbers
up to 255 are exact in fp16. Unsigned data is moved down by the middle, so that its codes are signed
and the default zero point is nothing to subtract; the zero point of the DequantizeLinear is written
out, because one that is left out is read as unsigned (trap 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.nodes import constant
from rewriter.site import Site
from rewriter.tape import Tape

_SIGNED = {2: ir.DataType.INT4, 4: ir.DataType.INT4, 8: ir.DataType.INT8}
"""2-bit codes take the 4-bit type: their own needs opset 25, and HTP misreads it."""


@dataclass(frozen=True, slots=True)
class Codes:
    """How the integers of a table are stored.

    Attributes:
        bits: of one code.
        dtype: of the codes that are emitted.
        packed: uint8 holds ``8 / bits`` codes a byte, low bits first.
    """

    bits: int
    dtype: ir.DataType
    packed: bool


def read_codes(site: Site, data: ir.Value) -> Codes:
    """How the codes of a GatherBlockQuantized are stored, or a refusal."""
    bits = site.integer("bits")
    if data.dtype in {ir.DataType.INT4, ir.DataType.UINT4}:
        return Codes(4, data.dtype, packed=False)
    site.require(data.dtype == ir.DataType.UINT8, f"data of {data.dtype} is not handled")
    site.require(bits in _SIGNED, f"codes of {bits} bits are not handled")
    return Codes(bits, _SIGNED[bits], packed=True)


def _source(value: ir.Value) -> ir.Value:
    """What a value is read from through Reshape: the tied table of genai is its head's weight."""
    producer = value.producer()
    while constant(value) is None and producer is not None and producer.op_type == "Reshape":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
        producer = value.producer()
    return value


def whole_table(
    op: Tape, site: Site, value: ir.Value, kind: Codes, shape: tuple[int, ...], what: str
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
