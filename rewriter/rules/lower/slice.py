"""Slice of booleans, which some EPs leave to the CPU in the middle of a graph.

Exporters slice the attention mask to the length it already has; that is no slice at all. A real
one goes through int32.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Slice", emits=("Cast", "Slice"), form="data dtype bool", opset=13)
def slice_of_integers(op: Tape, site: Site) -> ir.Value:
    """X where nothing is cut off; else Cast(Slice(Cast(x, int32)), bool)."""
    data = site.input("data")
    bounds = [site.input("starts"), site.input("ends")]
    more = [site.optional(name) for name in ("axes", "steps")]
    before, after = dims_of(data), dims_of(site.node.outputs[0])
    steps = more[1]
    forward = steps is None or bool((site.constant(steps, "steps") > 0).all())
    if before is not None and before == after and None not in before and forward:
        return data
    wide = op.Cast(data, to=ir.DataType.INT32)
    return op.Cast(op.Slice(wide, *bounds, *more), to=ir.DataType.BOOL)
