"""GatherElements with stored indices that count from the end, where an EP does not count so."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("GatherElements", emits=("GatherElements",), form="negative indices", opset=11)
def counted_from_the_start(op: Tape, site: Site) -> ir.Value:
    """The same with the size of the axis added to each index below 0."""
    data, indices, axis = site.input("data"), site.input("indices"), site.integer("axis")
    dims = dims_of(data)
    size = None if dims is None else dims[axis]
    if size is None:
        site.refuse(f"the size of axis {axis} of the data is not known")
    given = site.constant(indices, "indices")
    counted = np.where(given < 0, given + size, given).astype(given.dtype)
    return op.GatherElements(data, op.const(counted, indices.dtype, name="indices"), axis=axis)
