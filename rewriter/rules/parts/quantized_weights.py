"""A stored weight behind DequantizeLinear: its codes, which of them share a scale, its zero points.

W (K, N) = (x - zero_point)·scale with a scale per tensor, per column n, or per block of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.nodes import constant
from rewriter.site import Site

Array = npt.NDArray[Any]

_MATRIX = 2
BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}


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


def as_matrix(stored: ir.TensorProtocol) -> ir.TensorProtocol:
    """Codes (N, K, 1, ...) as (N, K); others as they are."""
    shape = tuple(stored.shape.numpy())
    if len(shape) <= _MATRIX or any(d != 1 for d in shape[_MATRIX:]):
        return stored

    def build() -> ir.TensorProtocol:
        return packing.integers(stored.numpy().reshape(shape[:_MATRIX]), stored.dtype)

    return ir.LazyTensor(build, stored.dtype, ir.Shape(shape[:_MATRIX]))


def grouping(site: Site, k_axis: int, shape: Sequence[int]) -> int:
    """Rows of K that share a scale: all of them, or a block.

    Raises:
        Refusal: the scales run along K itself, or their blocks along N.
    """
    scale, axis = site.input("x_scale"), site.integer("axis", 1) % len(shape)
    block = site.integer("block_size", 0)
    if block:
        along_k = axis == k_axis
        site.require(along_k, "the blocks run along N, not along K")
        return block
    if site.stored(scale, "the scale").size > 1:
        along_n = axis == 1 - k_axis
        site.require(along_n, "the scales run along K, not along N")
    return shape[k_axis]


def zero_points(site: Site, given: ir.Value | None, kind: str, bits: int) -> Array | None:
    """Unsigned zero points of the unsigned codes; ``None`` for the middle, which is assumed."""
    signed, middle = kind.startswith("int"), 1 << (bits - 1)
    if given is None:
        return None if signed else np.zeros((1, 1), np.uint8)
    points = site.constant(given, "the zero point").astype(np.int16) + (middle if signed else 0)
    return None if bool(np.all(points == middle)) else points.astype(np.uint8)
