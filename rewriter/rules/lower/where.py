"""Where with a branch of one element, repeated where an EP does not.

QNN 2.3 reads what lies behind such an integer in memory; a row of the last axis it repeats (record
``P/Where|a stored row``).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, dims_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("Where", emits=("Expand", "Where"), form="not output of one element", opset=9)
def one_element_as_a_row(op: Tape, site: Site) -> ir.Value:
    """Each branch of one element in the shortest end of the output's shape that has more."""
    condition, x, y = (site.input(name) for name in ("condition", "X", "Y"))
    alone = [branch for branch in (x, y) if set(dims_of(branch) or (1,)) == {1}]
    site.require(bool(alone), "no branch is of one element")
    shape = site.shape(site.node.outputs[0], "the output")
    row = np.array(shape[max(axis for axis, size in enumerate(shape) if size > 1) :], np.int64)

    def repeated(branch: ir.Value) -> ir.Value:
        if branch not in alone:
            return branch
        stored = constant(branch)
        if stored is not None:
            return op.const(np.full(row, stored.numpy().reshape(())), name="row")
        return op.Expand(branch, op.const(row, name="row_shape"))

    return op.Where(condition, repeated(x), repeated(y))
