"""Present caches get the length the runtime returns, where a file declares another one.

GroupQueryAttention returns max(capacity of the past, total length) rows, or as many as the past
has where that holds a window only. Exporters declare the total length, which is shorter when the
past is a buffer with room; a static target needs the truth.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.graphs import graphs_of
from rewriter.nodes import constant, dims_of, op_of
from rewriter.passes.dim_fit import windows


def correct_present_shapes(model: ir.Model) -> list[str]:
    """Correct declared shapes in place; returns a sentence for each that was not kept."""
    notes = []
    caches = windows(model)
    for node in (node for graph in graphs_of(model) for node in graph):
        if op_of(node) != "com.microsoft::GroupQueryAttention" or len(node.outputs) < 3:
            continue
        total = constant(node.inputs[6])
        for past, present in zip(node.inputs[3:5], node.outputs[1:3], strict=True):
            dims = None if past is None else dims_of(past)
            if past is None or total is None or dims is None or None in dims:
                continue
            if present.shape is None:
                continue
            windowed = (past.name or "") in caches
            rows = dims[2] or 0 if windowed else max(dims[2] or 0, int(total.numpy().item()))
            declared = present.shape[2]
            if declared == rows:
                continue
            present.shape = ir.Shape([dims[0], dims[1], rows, dims[3]])
            if isinstance(declared, int) and not windowed and present.is_graph_output():
                notes.append(
                    f"{present.name} was declared with {declared} rows; kept are the {rows} that "
                    "the runtime returns"
                )
    return notes
