"""DequantizeLinear of a stored weight in another form of itself, the same numbers.

EPs misread some forms: int4 without a zero point as unsigned, zero points that are added instead
of subtracted, blocked 4-bit codes, blocks along the second axis (measured/README.md, section D;
the rows of the table). Codes of 2 and 4 bits less their zero points always fit in int8, whose
zero point of 0, written out, every EP reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts.quantized_weights import BITS, codes_of
from rewriter.site import Site
from rewriter.tape import Tape

_SIGNED = {4: ir.DataType.INT4, 8: ir.DataType.INT8}


def _rebuilt(
    op: Tape, site: Site, x: ir.Value, scale: ir.Value, points: ir.Value, **changes: Any
) -> ir.Value:
    names = ("axis", "block_size", "output_dtype")
    attributes = {name: site.attribute(name) for name in names}
    if not attributes["block_size"]:
        attributes["block_size"] = None
    if not attributes["output_dtype"]:
        attributes["output_dtype"] = None
    return op.DequantizeLinear(x, scale, points, **{**attributes, **changes})


def _zeros(op: Tape, site: Site, dtype: ir.DataType) -> ir.Value:
    shape = site.stored(site.input("x_scale"), "the scale").shape.numpy()
    return op.const(np.zeros(shape, np.int8), dtype, name="zero_point")


@lowers(
    "DequantizeLinear",
    emits=("DequantizeLinear",),
    form="x from Cast",
    order=-1,
    opset=21,
    free=True,
)
def stored_codes(op: Tape, site: Site) -> ir.Value:
    """The same of 4-bit codes that are stored as such, not cast from bytes."""
    source, stored = codes_of(site)
    site.require(source is not site.input("x"), "the codes are no Cast of stored bytes")
    x = op.weight(("narrowed", source), stored, "codes")
    points = site.optional("x_zero_point")
    if points is None:
        points = _zeros(op, site, stored.dtype)
    return _rebuilt(op, site, x, site.input("x_scale"), points)


@lowers("DequantizeLinear", emits=("DequantizeLinear",), form="x_zero_point absent", order=0)
def explicit_zero_point(op: Tape, site: Site) -> ir.Value:
    """The same with its zero point of 0 written out."""
    x = site.input("x")
    site.stored(x, "the weight")
    assert x.dtype is not None
    return _rebuilt(op, site, x, site.input("x_scale"), _zeros(op, site, x.dtype))


@lowers(
    "DequantizeLinear",
    emits=("Cast", "DequantizeLinear"),
    form="x_scale dtype float16",
    order=1,
)
def float_scales(op: Tape, site: Site) -> ir.Value:
    """Cast(DequantizeLinear with float32 scales): products of 8 and 11 bits are exact there."""
    x, scale = site.input("x"), site.input("x_scale")
    site.stored(x, "the weight")
    bits = BITS.get(site.facts.inputs["x"].dtype, 32)
    site.require(bits <= 8, f"{site.facts.inputs['x'].dtype} times float16 is rounded in between")
    given = site.stored(scale, "the scale")
    wide = ir.LazyTensor(
        lambda: ir.tensor(given.numpy().astype(np.float32)),
        ir.DataType.FLOAT,
        ir.Shape(given.shape.numpy()),
    )
    points = site.optional("x_zero_point")
    if points is None:
        points = _zeros(op, site, site.stored(x, "the weight").dtype)
    y = _rebuilt(op, site, x, op.weight(("wide", scale), wide, "scales"), points, output_dtype=None)
    return op.Cast(y, to=site.node.outputs[0].dtype)


@lowers(
    "DequantizeLinear",
    emits=("DequantizeLinear", "Transpose"),
    form="blocked & axis=1/-1",
    order=2,
)
def blocks_along_the_first_axis(op: Tape, site: Site) -> ir.Value:
    """Transpose(DequantizeLinear) of a matrix that is stored transposed, blocked along axis 0."""
    x, scale, points = site.input("x"), site.input("x_scale"), site.optional("x_zero_point")
    site.require(len(site.shape(x, "the weight")) == 2, "the weight is no matrix")
    zeros = points if points is not None else _zeros(op, site, site.stored(x, "x").dtype)
    turned = [_turned(op, site, value) for value in (x, scale, zeros)]
    return op.Transpose(_rebuilt(op, site, *turned, axis=0), perm=[1, 0])


def _turned(op: Tape, site: Site, value: ir.Value) -> ir.Value:
    stored = site.stored(value, "the weight")

    def build() -> ir.TensorProtocol:
        turned = np.ascontiguousarray(stored.numpy().T)
        if stored.dtype.is_floating_point():
            return ir.tensor(turned, dtype=stored.dtype)
        return packing.integers(turned, stored.dtype)

    shape = ir.Shape(tuple(reversed(stored.shape.numpy())))
    return op.weight(("turned", value), ir.LazyTensor(build, stored.dtype, shape), "turned")


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
    return _rebuilt(op, site, moved, site.input("x_scale"), _zeros(op, site, dtype))
