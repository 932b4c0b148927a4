"""Range to a constant, or to one added to where it starts.

y_i = start + i · delta for as many i as fit before limit (onnx Operators.md, Range 11).
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, dims_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Range", emits=("Add",), opset=11)
def steps_from_start(op: Tape, site: Site) -> ir.Value:
    """The numbers, or start + [0, delta, 2·delta, ...] for a length that is known."""
    start, limit = site.input("start"), site.input("limit")
    delta = site.constant(site.input("delta"), "delta")
    known = constant(start) is not None and constant(limit) is not None
    if known:
        first = site.constant(start, "start")
        last = site.constant(limit, "limit")
        count = max(math.ceil((last.item() - first.item()) / delta.item()), 0)
        steps = first + np.arange(count, dtype=delta.dtype) * delta
        return op.const(steps.astype(delta.dtype), name="range")
    length = (dims_of(site.node.outputs[0]) or (None,))[0]
    if length is None:
        site.refuse("how long it is is known only at run time")
    steps = np.arange(length, dtype=delta.dtype) * delta
    return op.Add(start, op.const(steps.astype(delta.dtype), name="steps"))
