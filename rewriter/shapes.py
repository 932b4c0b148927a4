"""Dtypes and shapes of new nodes, and of whole graphs, through onnx-shape-inference."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import onnx_ir as ir
import onnx_shape_inference as inference

from rewriter import contrib_shapes
from rewriter.graphs import graphs_of

logging.getLogger("onnx_shape_inference").setLevel(logging.ERROR)


def _collect() -> None:
    inference.registry.collect()
    contrib_shapes.register()


_SYMBOLS = "pkg.onnx_shape_inference.sym_data"


class NoShape(ValueError):
    """A new node whose outputs get no dtype or shape; a fault of the rule that built it."""


class NodeInference:
    """Infers one node at a time, so that the next form check sees dtypes and ranks."""

    def __init__(self, imports: Mapping[str, int]) -> None:
        _collect()
        self._imports = dict(imports)

    def __call__(self, node: ir.Node) -> None:
        """Set dtype and shape of the node's outputs.

        Raises:
            NoShape: the op is unknown, or its inputs do not fit.
        """
        version = self._imports.get(node.domain, 1)
        infer = inference.registry.get(node.domain, node.op_type, version=version)
        if infer is None:
            raise NoShape(f"no shape inference is registered for {node.domain}::{node.op_type}")
        context = inference.ShapeInferenceContext(self._imports, policy="refine")
        try:
            infer(context, node)
        except (inference.OpUsageError, inference.ShapeInferenceError) as error:
            raise NoShape(str(error)) from error
        missing = [o.name for o in node.outputs if o.dtype is None or o.shape is None]
        if missing:
            raise NoShape(f"{node.op_type} gives {', '.join(map(str, missing))} no dtype or shape")


def infer_model(model: ir.Model) -> None:
    """Infer every value of a model in place.

    Shapes that a file declares inside its graph are not trusted (exporters write wrong ones):
    they stand only where nothing can be inferred. Those of graph inputs and outputs are refined;
    those of constants, and their types, come from the tensors themselves.

    Raises:
        inference.OpUsageError: the shapes of some node do not fit together.
    """
    _collect()
    graphs = list(graphs_of(model))
    _type_constants(graphs)
    declared = {
        value: value.shape
        for graph in graphs
        for node in graph
        for value in node.outputs
        if value.shape is not None and not value.is_graph_output() and _inferable(node, model)
    }
    for value in declared:
        value.shape = None
    endless = _loops_without_condition(graphs)
    for loop in endless:  # the inference asks for a condition, which ONNX does not
        loop.replace_input_with(1, ir.val("", dtype=ir.DataType.BOOL, shape=()))
    try:
        inference.infer_symbolic_shapes(model, warn_on_missing=False)
    finally:
        for loop in endless:
            loop.replace_input_with(1, None)
    for value, shape in declared.items():
        if value.shape is None:
            value.shape = shape


def all_static(model: ir.Model) -> bool:
    """Whether every value has a type, and every dim is a number: nothing is left to infer."""
    return all(
        value.dtype is not None
        and value.shape is not None
        and all(isinstance(dim, int) for dim in value.shape)
        for graph in graphs_of(model)
        for values in (graph.inputs, *(node.outputs for node in graph))
        for value in values
        if value.name != ""
    )


def forget_symbols(model: ir.Model) -> None:
    """Remove what the inference notes at values for itself; it would be written to the file."""
    graphs: list[ir.Graph | ir.Function] = [*graphs_of(model), *model.functions.values()]
    for graph in graphs:
        stored = list(graph.initializers.values()) if isinstance(graph, ir.Graph) else []
        made = [value for node in graph for value in node.outputs]
        for value in (*graph.inputs, *stored, *made):
            value.metadata_props.pop(_SYMBOLS, None)


def _loops_without_condition(graphs: Sequence[ir.Graph]) -> list[ir.Node]:
    return [
        node
        for graph in graphs
        for node in graph
        if node.op_type == "Loop" and node.domain == "" and len(node.inputs) > 1
        if node.inputs[1] is None
    ]


def _type_constants(graphs: Sequence[ir.Graph]) -> None:
    for graph in graphs:
        for value in graph.initializers.values():
            if value.const_value is not None and value.dtype != value.const_value.dtype:
                value.type = ir.TensorType(value.const_value.dtype)


def _inferable(node: ir.Node, model: ir.Model) -> bool:
    version = model.opset_imports.get(node.domain, 1)
    return inference.registry.get(node.domain, node.op_type, version=version) is not None
