"""Shape arithmetic becomes constants once the dims are fixed.

Folded are Shape and Size of static values, and integer or boolean nodes of a few elements whose
inputs are all constant. Floats are folded only on the way to an integer, as torch computes the
side of a square grid of patches from their number; weights and Q/DQ never, so no file grows.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from rewriter.graphs import graphs_of
from rewriter.nodes import constant, dims_of, present
from rewriter.passes.folded_size import folded_size
from rewriter.passes.take_branches import TakeBranches
from rewriter.shapes import all_static, infer_model

_FOLDED = frozenset({
    "Abs", "Add", "And", "Cast", "Concat", "Constant", "ConstantOfShape", "Div", "Equal",
    "Expand", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max",
    "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
_INTEGER = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})
_BETWEEN = frozenset({"Cast", "Ceil", "Div", "Floor", "Mul", "Pow", "Round", "Sqrt"})
"""Arithmetic on floats that sizes go through."""
_MOST = 1024
"""Elements of a value that is still shape arithmetic."""


def settle_shapes(model: ir.Model) -> list[str]:
    """Infer, fold and take branches by turns: a folded shape makes others known.

    Returns:
        What should be known of it.
    """
    notes: list[str] = []
    infer_model(model)
    while _folded(model) or _took_branches(model, notes):
        infer_model(model)
    return notes


def _folded(model: ir.Model) -> bool:
    """Fold; whether that may have made shapes known that were not."""
    return FoldShapes()(model).modified and not all_static(model)


def _took_branches(model: ir.Model, notes: list[str]) -> bool:
    branches = TakeBranches()
    modified = branches(model).modified
    notes += branches.notes
    return modified


class FoldShapes(InPlacePass):
    """Replaces shape arithmetic by constants; reports how many nodes went."""

    def __init__(self) -> None:
        super().__init__()
        self.folded = 0

    def call(self, model: ir.Model) -> PassResult:
        """Fold the main graph and the graphs inside it."""
        sizes = _floats_of_sizes(model)
        for graph in graphs_of(model):
            for node in list(graph):
                if node.op_type == "Constant" or node.domain not in {"", "ai.onnx"}:
                    continue
                if (folded := _value(node, model, sizes)) is not None:
                    _replace(graph, node, folded)
                    self.folded += 1
        return PassResult(model, modified=self.folded > 0)


def _value(node: ir.Node, model: ir.Model, sizes: Set[ir.Value]) -> np.ndarray | None:
    output = node.outputs[0]
    if len(node.outputs) != 1 or output.is_graph_output():
        return None
    if node.op_type in {"Shape", "Size"}:
        return _of_shape(node)
    whole = node.op_type in _FOLDED and output.dtype in _INTEGER
    if not whole and output not in sizes:
        return None
    inputs = [constant(v) if present(v) else None for v in node.inputs]
    given = [present(v) for v in node.inputs]
    if any(g and t is None for g, t in zip(given, inputs, strict=True)):
        return None
    if any(t is not None and not _is_of_shapes(t) for t in inputs):
        return None
    if _too_large(node.op_type, inputs):
        return None
    return _evaluated(node, inputs, model.opset_imports.get("", 1))


def _too_large(op: str, inputs: list[ir.TensorProtocol | None]) -> bool:
    """Whether a result has more elements than shape arithmetic, or inputs no op of its kind has."""
    try:
        return not folded_size(op, inputs) <= _MOST
    except (IndexError, ValueError, OverflowError):
        return True


def _is_of_shapes(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant may be a number of shape arithmetic: integers, or one float."""
    return tensor.size <= (_MOST if tensor.dtype in _INTEGER else 1)


def _floats_of_sizes(model: ir.Model) -> Set[ir.Value]:
    """Floats that are only ever read, through arithmetic, by a Cast to an integer."""
    found: set[ir.Value] = set()
    for graph in reversed(list(graphs_of(model))):
        for node in reversed(graph):  # readers first, so each value is looked at once
            value = node.outputs[0]
            if node.op_type not in _BETWEEN or value.dtype in _INTEGER or value.is_graph_output():
                continue
            readers = [use.node for use in value.uses()]
            if readers and all(
                reader.op_type in _BETWEEN
                and (reader.outputs[0].dtype in _INTEGER or reader.outputs[0] in found)
                for reader in readers
            ):
                found.add(value)
    return found


def _of_shape(node: ir.Node) -> np.ndarray | None:
    source = node.inputs[0]
    dims = None if source is None else dims_of(source)
    if dims is None:
        return None
    if node.op_type == "Size":
        known = [d for d in dims if d is not None]
        return np.array(math.prod(known), np.int64) if len(known) == len(dims) else None
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    part = dims[start.as_int() if start else 0 : end.as_int() if end else None]
    return None if None in part else np.array(part, np.int64)


def _evaluated(
    node: ir.Node, inputs: list[ir.TensorProtocol | None], opset: int
) -> np.ndarray | None:
    from onnx.reference import ReferenceEvaluator

    feeds: dict[str, Any] = {f"i{i}": t.numpy() for i, t in enumerate(inputs) if t is not None}
    values = {
        name: ir.val(name, dtype=ir.DataType.from_numpy(a.dtype), shape=a.shape)
        for name, a in feeds.items()
    }
    copy = ir.Node(
        "",
        node.op_type,
        [values.get(f"i{i}") for i in range(len(inputs))],
        list(node.attributes.values()),
        num_outputs=1,
    )
    copy.outputs[0].name = "y"
    graph = ir.Graph(
        list(values.values()), copy.outputs, nodes=[copy], opset_imports={"": opset}, name="fold"
    )
    evaluator: Any = ReferenceEvaluator(ir.to_proto(ir.Model(graph, ir_version=10)))
    try:
        result = np.asarray(evaluator.run(None, feeds)[0])
    except MemoryError:
        raise
    except Exception:  # what cannot be computed stays for the runtime to refuse
        return None
    return result if result.size <= _MOST else None


def _replace(graph: ir.Graph, node: ir.Node, array: np.ndarray) -> None:
    old = node.outputs[0]
    tensor = ir.tensor(array, dtype=old.dtype, name=old.name)
    new = ir.Value(
        name=old.name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )
    old.name = None
    old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    graph.register_initializer(new)
