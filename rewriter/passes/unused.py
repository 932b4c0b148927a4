"""What nothing uses any more goes: nodes, initializers, functions, imports."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from rewriter.graphs import graphs_of

_LOOP_INPUTS = 2


def remove_unused(model: ir.Model) -> None:
    """Remove what nothing uses; graph inputs and outputs stay.

    onnx_ir also cuts off trailing inputs that are left out; a Loop has to name its first two.
    """
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]  # onnx_ir does not annotate it
    common.RemoveUnusedOpsetsPass()(model)
    graphs: list[ir.Graph | ir.Function] = [*graphs_of(model), *model.functions.values()]
    for graph in graphs:
        for node in graph:
            if node.op_type == "Loop" and len(node.inputs) < _LOOP_INPUTS:
                node.resize_inputs(_LOOP_INPUTS)
