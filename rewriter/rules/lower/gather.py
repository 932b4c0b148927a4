"""Gather that does not end in a graph output.

HTP adds no Gather of int64 that writes a graph output, unless it reads a graph input; one whose
result is reshaped runs. So the indices get an axis more (or lose theirs), and a Reshape (for a
scalar, Squeeze) gives the result its shape: nothing else changes.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import axes, reshaped
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "Gather",
    emits=("Gather", "Reshape", "Squeeze"),
    form="data dtype int64 & output at the boundary",
    opset=13,
)
def gather_and_reshape(op: Tape, site: Site) -> ir.Value:
    """Reshape(Gather(data, Reshape(indices)))."""
    data, indices = site.input("data"), site.input("indices")
    shape = site.shape(site.node.outputs[0], "the output")
    given = site.shape(indices, "indices")
    flat = (1, *given) if len(given) == 1 else (math.prod(given),)
    stored = constant(indices)
    if stored is None:
        at = reshaped(op, indices, flat)
    else:
        at = op.const(stored.numpy().reshape(flat), indices.dtype, name="indices")
    found = op.Gather(data, at, axis=site.integer("axis"))
    if not shape:  # an empty shape would be a tensor without elements
        return op.Squeeze(found, axes(op, 0))
    return reshaped(op, found, shape)
