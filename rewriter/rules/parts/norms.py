"""What layer and RMS normalization share: one long last axis, and mean and deviation written out.

``axis`` counts from the front; normalized is over all axes from it on, M elements together.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape


def is_flat(rank: int, axis: int) -> bool:
    """Whether :func:`as_rows` would change nothing."""
    return axis == rank - 1 and rank <= 3


def as_rows(op: Tape, x: ir.Value, shape: tuple[int, ...], axis: int) -> ir.Value:
    """The same memory as (B, rows, M): rank 3, because norms of rank 4 were wrong on a device."""
    if is_flat(len(shape), axis):
        return x
    first = shape[0] if axis else 1
    rows = math.prod(shape[1:axis])
    return reshaped(op, x, (first, rows, math.prod(shape[axis:])), "rows_shape")


def as_before(op: Tape, y: ir.Value, shape: tuple[int, ...], axis: int) -> ir.Value:
    """Back from :func:`as_rows`."""
    if is_flat(len(shape), axis):
        return y
    return reshaped(op, y, shape, "norm_shape")


def weight_row(
    op: Tape, site: Site, weight: ir.Value, shape: tuple[int, ...], axis: int, what: str
) -> ir.Value:
    """A scale or bias of all that is normalized, as (M)."""
    given = site.shape(weight, what)
    padded = (1,) * (len(shape) - len(given)) + given
    site.require(
        padded == (1,) * axis + shape[axis:],
        f"{what} {given} has not the shape of what is normalized, {shape[axis:]}",
    )
    size = math.prod(given)
    if given == (size,):
        return weight
    if constant(weight) is not None:
        return op.const(site.constant(weight, what).reshape(size), weight.dtype, name=what)
    return reshaped(op, weight, (size,), "weight_shape")


def rms_of_rows(op: Tape, site: Site) -> ir.Value:
    """The same RMS norm (of either op) over the last of three axes."""
    x = site.input("X")
    shape = site.shape(x, "X")
    axis = site.integer("axis") % len(shape)
    site.require(not is_flat(len(shape), axis), "it is over the last axis, at rank 3 or less")
    weight = weight_row(op, site, site.input("scale"), shape, axis, "scale")
    attributes = {
        "axis": -1,
        "epsilon": site.number("epsilon"),
        "stash_type": site.integer("stash_type"),
    }
    rows = as_rows(op, x, shape, axis)
    return as_before(op, op.emit(site.facts.op, (rows, weight), attributes)[0], shape, axis)


def deviation(
    op: Tape, x: ir.Value, rank: int, axis: int, epsilon: float, stash: ir.DataType
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """M = mean(x), x - m, and 1 / sqrt(mean((x - m)²) + epsilon), computed in ``stash``."""
    wide = x if x.dtype == stash else op.Cast(x, to=stash)
    axes = op.const(np.arange(axis, rank), ir.DataType.INT64, name="axes")
    mean = op.ReduceMean(wide, axes, keepdims=1)
    centred = op.Sub(wide, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=1)
    root = op.Sqrt(op.Add(variance, op.const(np.float32(epsilon), stash, name="epsilon")))
    return mean, centred, op.Reciprocal(root)
