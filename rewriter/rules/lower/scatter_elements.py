"""ScatterElements of rank 5 at rank 4.

Two neighbouring axes become one where neither is the axis of the indices, and updates cover the
second of them whole: then an element of updates stays at its place in data (onnx Operators.md,
ScatterElements 18).
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("ScatterElements", emits=("Reshape", "ScatterElements"), form="rank 5", opset=11)
def of_merged_axes(op: Tape, site: Site) -> ir.Value:
    """Reshape(ScatterElements(Reshape(data), Reshape(indices), Reshape(updates)))."""
    names = ("data", "indices", "updates")
    values = [site.input(name) for name in names]
    whole, part = (site.shape(value, name) for value, name in zip(values[:2], names, strict=False))
    axis = site.integer("axis") % len(whole)
    first = next(
        (
            i
            for i in range(len(whole) - 1)
            if axis not in {i, i + 1} and whole[i + 1] == part[i + 1]
        ),
        None,
    )
    if first is None:
        site.refuse("no two axes can become one: updates cover none of them whole")

    def merged(value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        new = (*shape[:first], shape[first] * shape[first + 1], *shape[first + 2 :])
        return reshaped(op, value, new)

    small = [merged(value, shape) for value, shape in zip(values, (whole, part, part), strict=True)]
    attributes = {"axis": axis - (axis > first), "reduction": site.attribute("reduction")}
    y = op.emit("ScatterElements", small, attributes)[0]
    return reshaped(op, y, whole)
