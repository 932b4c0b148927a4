"""DequantizeLinear of a stored weight with other codes, less their zero points: the same numbers.

EPs misread some forms: zero points that are added instead of subtracted, blocked 4-bit codes
(measured/README.md, section D; the rows of the table). Codes of 2 and 4 bits less their zero points
always fit in int8, whose zero point of 0, written out, every EP reads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts.dequantized import rebuilt, zeros
from rewriter.rules.parts.quantized_weights import BITS
from rewriter.site import Site
from rewriter.tape import Tape

_SIGNED = {4: ir.DataType.INT4, 8: ir.DataType.INT8}


@lowers("DequantizeLinear", emits=("DequantizeLinear",), order=3, opset=21)
def signed_codes(op: Tape, site: Site) -> ir.Value:
    """The same of int4 or int8 codes less their zero points, with one of 0 written out."""
    kind, points = _read(site)
    bits, signed = BITS[kind], kind.startswith("int")
    middle = bool(np.all(points == (0 if signed else 1 << (bits - 1))))
    site.require(not (signed and middle and bits >= 4), "its zero points are 0 already")
    site.require(middle or bits < 8, f"{kind} less a zero point does not fit in 8 bits")
    return _moved(op, site, points, max(bits, 4) if middle else 8)


@lowers("DequantizeLinear", emits=("DequantizeLinear",), order=4)
def byte_codes(op: Tape, site: Site) -> ir.Value:
    """The same of int8 codes less their zero points, with one of 0 written out."""
    kind, points = _read(site)
    site.require(BITS[kind] < 8, f"{kind} is as wide already")
    return _moved(op, site, points, 8)


def _read(site: Site) -> tuple[str, npt.NDArray[np.int16]]:
    """Type and zero points of a stored weight, or a refusal."""
    site.stored(site.input("x"), "the weight")
    kind, given = site.facts.inputs["x"].dtype, site.optional("x_zero_point")
    site.require(kind in BITS, f"weights of {kind} are not handled")
    if given is None:
        return kind, np.zeros(1, np.int16)
    return kind, site.constant(given, "the zero point").astype(np.int16)


def _moved(op: Tape, site: Site, points: npt.NDArray[np.int16], bits: int) -> ir.Value:
    x, dtype = site.input("x"), _SIGNED[bits]
    stored = site.stored(x, "the weight")
    shape = stored.shape.numpy()
    axis, block = site.integer("axis", 1) % max(len(shape), 1), site.integer("block_size", 0)

    def codes() -> ir.TensorProtocol:
        spread = points
        if block and points.size > 1:
            spread = np.repeat(points, block, axis=axis)[tuple(slice(d) for d in shape)]
        elif points.size > 1:
            spread = points.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return packing.integers(stored.numpy().astype(np.int16) - spread, dtype)

    lazy = ir.LazyTensor(codes, dtype, ir.Shape(shape))
    if lazy.nbytes > stored.nbytes:
        op.note(f"{x.name} is stored as {dtype.name.lower()}: {lazy.nbytes} bytes")
    moved = op.weight(("less its zero points", x, dtype), lazy, "codes")
    return rebuilt(op, site, moved, site.input("x_scale"), zeros(op, site, dtype))
