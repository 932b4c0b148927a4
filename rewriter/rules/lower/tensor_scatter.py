"""ai.onnx TensorScatter (opset 24), the write into a KV cache, to ScatterElements.

present[b, ..., w, ...] = update[b, ..., i, ...] with w = write_indices[b] + i along the axis, for
i < S; circular takes w modulo the length of the cache, and nothing else of the index (D16).
Without write_indices the update replaces the first S rows.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape

_UNSCATTERED = frozenset({
    "FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0",
    "INT4", "UINT4",
})  # fmt: skip
"""Types of TensorScatter that ScatterElements does not take."""


@lowers(
    "TensorScatter",
    emits=("Add", "Concat", "Expand", "Mod", "Reshape", "ScatterElements", "Slice", "Unsqueeze"),
    opset=18,
)
def scattered_rows(op: Tape, site: Site) -> ir.Value:
    """ScatterElements at integer rows; a Concat where they are the first ones."""
    cache, update = site.input("past_cache"), site.input("update")
    rank = site.rank(cache, "past_cache")
    axis = site.integer("axis")
    site.require(-rank <= axis < rank and axis % rank != 0, f"axis={axis} is no sequence axis")
    axis %= rank
    dtype = cache.dtype
    site.require(dtype is not None and dtype.name not in _UNSCATTERED, f"no scatter of {dtype}")
    capacity = _dims(site, cache, "past_cache")[axis]
    dims = _dims(site, update, "update")
    site.require(dims[axis] <= capacity, f"{dims[axis]} rows do not fit a cache of {capacity}")
    mode = site.attribute("mode")
    site.require(mode in {"linear", "circular"}, f"mode={mode} is not defined")
    starts = site.optional("write_indices")
    if starts is None:
        return _first_rows(op, cache, update, axis, dims[axis], capacity)
    folded = rank > 4  # HTP scatters at up to rank 4; the dims around the axis fold
    if folded:
        cache, update = (_folded(op, x, axis) for x in (cache, update))
        dims, axis = _dims(site, update, "update"), 2
    rows = _rows(op, starts, dims, axis, capacity if mode == "circular" else 0)
    written = op.ScatterElements(cache, rows, update, axis=axis)
    if not folded:
        return written
    whole = _dims(site, site.input("past_cache"), "past_cache")
    return reshaped(op, written, (0, *whole[1:]), "cache_shape")


def _dims(site: Site, value: ir.Value, name: str) -> list[int]:
    """Dims of a value, the batch as 1: what is expanded to them keeps its own."""
    site.rank(value, name)
    known = (dims_of(value) or ())[1:]
    site.require(None not in known, f"{name} has a dim that is not fixed: {value.shape}")
    return [1, *(d for d in known if d is not None)]


def _folded(op: Tape, x: ir.Value, axis: int) -> ir.Value:
    """A cache or an update as (B, all before the axis, rows, all behind it)."""
    dims = [d or 0 for d in dims_of(x) or ()]
    shape = [0, math.prod(dims[1:axis]), dims[axis], math.prod(dims[axis + 1 :])]
    return reshaped(op, x, shape, "folded")


def _first_rows(
    op: Tape, cache: ir.Value, update: ir.Value, axis: int, new: int, capacity: int
) -> ir.Value:
    """The update, and what of the cache is behind it."""
    if new == capacity:
        return update
    return op.Concat(update, sliced(op, cache, new, capacity, axis), axis=axis)


def _rows(op: Tape, starts: ir.Value, dims: list[int], axis: int, modulus: int) -> ir.Value:
    """The row of the cache for every element of the update, built once for all caches."""

    def build() -> ir.Value:
        axes = op.const(np.arange(1, len(dims)), ir.DataType.INT64, name="axes")
        rows = op.Unsqueeze(starts, axes)
        if dims[axis] > 1:
            steps = np.arange(dims[axis]).reshape(
                [-1 if i == axis else 1 for i in range(len(dims))]
            )
            rows = op.Add(rows, op.const(steps, starts.dtype, name="steps"))
        if modulus:
            rows = op.Mod(rows, op.const(np.array(modulus), starts.dtype, name="capacity"))
        return op.Expand(rows, op.const(np.array(dims, np.int64), name="rows_shape"))

    return op.once(("scatter rows", starts, tuple(dims), axis, modulus), build)
