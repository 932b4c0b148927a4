"""DequantizeLinear of a stored weight written otherwise, of the same codes.

EPs misread some forms: int4 without a zero point as unsigned, float16 scales, blocks along the
second axis (measured/README.md, section D; the rows of the table).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter import packing
from rewriter.rule import lowers
from rewriter.rules.parts.dequantized import rebuilt, zeros
from rewriter.rules.parts.quantized_weights import BITS, codes_of
from rewriter.site import Site
from rewriter.tape import Tape


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
        points = zeros(op, site, stored.dtype)
    return rebuilt(op, site, x, site.input("x_scale"), points)


@lowers("DequantizeLinear", emits=("DequantizeLinear",), form="x_zero_point absent", order=0)
def explicit_zero_point(op: Tape, site: Site) -> ir.Value:
    """The same with its zero point of 0 written out."""
    x = site.input("x")
    site.stored(x, "the weight")
    assert x.dtype is not None
    return rebuilt(op, site, x, site.input("x_scale"), zeros(op, site, x.dtype))


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
        points = zeros(op, site, site.stored(x, "the weight").dtype)
    y = rebuilt(op, site, x, op.weight(("wide", scale), wide, "scales"), points, output_dtype=None)
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
    at = points if points is not None else zeros(op, site, site.stored(x, "x").dtype)
    transposed = [_transposed(op, site, value) for value in (x, scale, at)]
    return op.Transpose(rebuilt(op, site, *transposed, axis=0), perm=[1, 0])


def _transposed(op: Tape, site: Site, value: ir.Value) -> ir.Value:
    stored = site.stored(value, "the weight")

    def build() -> ir.TensorProtocol:
        transposed = np.ascontiguousarray(stored.numpy().T)
        if stored.dtype.is_floating_point():
            return ir.tensor(transposed, dtype=stored.dtype)
        return packing.integers(transposed, stored.dtype)

    shape = ir.Shape(tuple(reversed(stored.shape.numpy())))
    return op.weight(("transposed", value), ir.LazyTensor(build, stored.dtype, shape), "turned")
