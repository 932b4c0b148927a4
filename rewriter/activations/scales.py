"""Scales and zero points of activations from the ranges that they took."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.activations.choose import activations_of, moves_numbers, table_of
from rewriter.activations.model import Range
from rewriter.nodes import op_of

_KNOWN = {"Sigmoid": Range(0.0, 1.0), "Softmax": Range(0.0, 1.0), "Tanh": Range(-1.0, 1.0)}
"""Ranges that an op gives by itself, whatever calibration has seen of them."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How numbers become integers: ``round(x / step) + zero``, kept within the type."""

    step: float
    zero: int
    dtype: ir.DataType


def scale_of(found: Range, dtype: ir.DataType) -> Scale:
    """The scale that holds a range and 0, to the nearest step; signed types are symmetric.

    >>> scale_of(Range(-1.0, 1.0), ir.DataType.UINT8)
    Scale(step=0.007843137718737125, zero=128, dtype=UINT8)
    """
    low, high = min(found.low, 0.0), max(found.high, 0.0)
    if dtype.is_signed():
        low, high = 0.0, max(-low, high)
    top = (1 << (dtype.bitwidth - dtype.is_signed())) - 1
    step = float(np.float32((high - low) / top)) or float(np.float32(1.0 / top))
    return Scale(step, min(max(round(-low / step), 0), top), dtype)


def shared_ranges(units: Iterable[ir.Node], ranges: Mapping[str, Range]) -> dict[ir.Value, Range]:
    """The range of each activation of the units, by value.

    What only moves through an op has one scale before and after it, hence one range: that of all
    that comes together there. A cache and what was written into it are such.

    Args:
        units: quantized nodes.
        ranges: what was seen, by name.
    """
    parent: dict[ir.Value, ir.Value] = {}

    def root(value: ir.Value) -> ir.Value:
        while parent.setdefault(value, value) is not value:
            parent[value] = parent[parent[value]]
            value = parent[value]
        return value

    for node in units:
        values = [*activations_of(node), *node.outputs]
        first = root(values[0])
        for value in values:
            root(value)
            if moves_numbers(node):
                parent[root(value)] = first = root(first)
    found: dict[ir.Value, Range] = {}
    for value in parent:
        seen = _known(value) or ranges.get(value.name or "")
        if seen is not None:
            top = root(value)
            found[top] = seen if top not in found else found[top] | seen
    return {value: found[root(value)] for value in parent if root(value) in found}


def _known(value: ir.Value) -> Range | None:
    """What a value's op gives at most: rows of a table that no calibration has looked up too."""
    made = value.producer()
    if made is None:
        return None
    table = table_of(made)
    if table is None or not table.size:
        return _KNOWN.get(op_of(made))
    array = table.numpy()
    found = Range(float(array.min()), float(array.max()))
    return found if math.isfinite(found.width) else None
