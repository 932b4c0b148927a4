"""A quant with a minimum, W = s·q - m with codes from 0 up, recentred around the middle code.

    A·W = A·s·(q - z0) - Σ_b (sum of A over the block b) · (m_b - z0·s_b),   z0 = 2^(bits-1)

The sum of s·q over codes of 0 to 15 is large and the minimums take nearly all of it away again,
which fp16 cannot follow: on HTP (2.3 to 2.7) the error is 4 to 6 times that of the recentred
form for inputs around 0, and 30 to 50 times it for positive ones (:mod:`rewriter.rules.parts.nbits`
has the figures). One constant changes; the block sums stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts import nbits
from rewriter.site import Site
from rewriter.tape import Tape


def _pattern(kind: str, *, product_first: bool = True) -> Callable[..., Any]:
    def pattern(op: Any, a: Any, codes: Any, scales: Any, points: Any, sums: Any, m: Any) -> Any:
        product = op.MatMulNBits(a, codes, scales, points, _domain="com.microsoft",
                                 _allow_other_inputs=True, _outputs=["product"])  # fmt: skip
        moved = op.MatMul(sums, m)
        both = (product, moved) if product_first else (moved, product)
        return op.Sub(*both) if kind == "Sub" else op.Add(*both)

    return pattern


def _require_block_sums(site: Site, a: ir.Value, sums: ir.Value, block: int) -> None:
    """Refuse unless ``sums`` are those of the blocks of ``a`` along its last axis."""
    *outer, k = site.shape(a, "A")
    reduce = sums.producer()
    site.require(reduce is not None and reduce.op_type == "ReduceSum", "the factor is no sum")
    assert reduce is not None
    reshape = reduce.inputs[0].producer() if reduce.inputs[0] is not None else None
    blocks = reshape is not None and reshape.op_type == "Reshape" and reshape.inputs[0] is a
    site.require(blocks, "the sums are of another value")
    assert reshape is not None
    shape = [*outer, k // block, block]
    same = list(site.shape(reshape.outputs[0], "the blocks")) == shape
    site.require(same, "the sums are of other blocks")
    reducing = Site(reduce, {"": site.opset})
    axes = reducing.attribute("axes") if site.opset < 13 else None
    if axes is None and len(reduce.inputs) > 1:
        axes = site.constant(reducing.input("axes"), "axes").tolist()
    last = [axis % len(shape) for axis in axes or ()] == [len(shape) - 1]
    site.require(last and reducing.integer("keepdims") == 0, "the sums are not of whole blocks")


def _recentre(op: Tape, site: Site, sign: int = 1) -> ir.Value:
    product = site.others["product"]
    k, n, block, bits = nbits.sizes(product)
    a, scales, minimums = (site.bound[name] for name in ("a", "scales", "m"))
    points = nbits.packed_zero_points(product)
    site.require(points is not None, "the zero points are no packed integers")
    assert points is not None
    zero = not site.stored(points, "zero_points").numpy().any()
    site.require(zero, "the zero points are not 0")
    site.require(k % block == 0, "the last block of K is not full")
    _require_block_sums(site, a, site.bound["sums"], block)
    stored, given = site.stored(scales, "scales"), site.stored(minimums, "the minimums")
    shape, middle = (k // block, n), 1 << (bits - 1)
    site.require(tuple(given.shape.numpy()) == shape, "the minimums are not one per block")

    def recentred() -> ir.TensorProtocol:
        steps = stored.numpy().astype(np.float64).reshape(n, -1).T
        rows = given.numpy().astype(np.float64) + sign * middle * steps
        return ir.tensor(rows.astype(given.dtype.numpy()), dtype=given.dtype)

    moved = op.weight(
        ("recentred", minimums, scales, sign * middle),
        ir.LazyTensor(recentred, given.dtype, ir.Shape(shape)),
        "minimums",
    )
    kind = given.dtype.name.lower()
    op.note(f"minimums m became m - {middle}·s of {kind}, each rounded once")
    beside = (product.optional(name) for name in ("g_idx", "bias"))
    inputs = [a, site.bound["codes"], scales, None, *beside]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {name: product.attribute(name) for name in product.node.attributes}
    y = op.emit("com.microsoft::MatMulNBits", inputs, attributes)[0]
    part = op.MatMul(site.bound["sums"], moved)
    return op.Add(y, part) if sign > 0 else op.Sub(y, part)


_NBITS = "com.microsoft::MatMulNBits"


@fuses("Sub", pattern=_pattern("Sub"), emits=(_NBITS, "MatMul", "Sub"), needed=True)
def recentred_minimum(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(a, q, s) - MatMul(block sums, m - z0·s) where the zero points were 0."""
    return _recentre(op, site, -1)


@fuses("Add", pattern=_pattern("Add"), emits=(_NBITS, "MatMul", "Add"), needed=True)
def recentred_addend(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(a, q, s) + MatMul(block sums, m + z0·s) where the zero points were 0."""
    return _recentre(op, site)


@fuses(
    "Add",
    pattern=_pattern("Add", product_first=False),
    emits=(_NBITS, "MatMul", "Add"),
    order=1,
    needed=True,
)
def recentred_addend_first(op: Tape, site: Site) -> ir.Value:
    """MatMulNBits(a, q, s) + MatMul(block sums, m + z0·s) where the zero points were 0."""
    return _recentre(op, site)
