"""Concat without the inputs that have no element: a cache that is empty before the first prompt.

QNN cannot hold a tensor of zero elements, though only the graph input itself has to exist.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import dims_of, present
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Concat", emits=("Concat",), form="empty", opset=13)
def without_empty(op: Tape, site: Site) -> ir.Value:
    """Concat(x, nothing, y) = Concat(x, y); one input that is left stands for itself."""
    site.ignore(*site.facts.inputs)
    inputs = [v for v in site.node.inputs if v is not None and present(v)]
    kept = [v for v in inputs if 0 not in (dims_of(v) or ())]
    site.require(bool(kept), "all inputs are empty")
    axis = site.integer("axis")
    return kept[0] if len(kept) == 1 else op.Concat(*kept, axis=axis)
