"""Constants that stay in the model's file, for a reader that misreads external data.

Writers put initializers of some size into a file beside the model. A Constant node's content is
always in the model's own file, so an initializer that must not leave it becomes one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from capabilities import Row, Target
from rewriter.errors import BadInput
from rewriter.facts import facts_of
from rewriter.graphs import graphs_of

_SMALL = 256
"""Bytes up to which writers keep a tensor inside anyway (:func:`onnx_ir.save`)."""
_MOST = 2**31 - 2**20
"""Bytes of weights that a protobuf file can hold, with room for the graph."""


class StoreInside(InPlacePass):
    """Keeps inside what a row of the target forbids outside.

    Attributes:
        notes: what was kept, and why.
        count: how many constants.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.count = 0
        self._target = target
        self._rows = [row for row in target.rows if "outside the file" in str(row.form)]

    def call(self, model: ir.Model) -> PassResult:
        """Turn initializers into Constant nodes.

        Raises:
            BadInput: they are more than one file can hold.
        """
        kept: Counter[Row] = Counter()
        for graph in list(graphs_of(model)) if self._rows else ():
            for value in list(graph.initializers.values()):
                row = self._misread(value, model)
                if row is not None and value.const_value is not None:
                    kept[row] += value.const_value.nbytes
                    self.count += 1
                    _to_node(graph, value, value.const_value)
        for row, size in kept.items():
            text = f"{size / 1e6:.1f} MB of weights are kept in the model's own file: {row.why}"
            if size > _MOST:
                raise BadInput(f"{text}; that file can hold 2 GB: use a newer {self._target.ep}")
            self.notes.append(text)
        return PassResult(model, modified=bool(kept))

    def _misread(self, value: ir.Value, model: ir.Model) -> Row | None:
        """The row that one of the nodes that read a constant falls under once it is outside."""
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _SMALL or value.is_graph_input():
            return None
        for node, at in value.uses():
            facts = facts_of(node, model.opset_imports, self._target)
            given = [v is not None and v.name != "" for v in node.inputs[:at]].count(True)
            name = list(facts.inputs)[given]
            inputs = {**facts.inputs, name: replace(facts.inputs[name], outside=True)}
            outside = replace(facts, inputs=inputs)
            for row in self._rows:
                if row.op in {"*", facts.op} and row.holds(outside):
                    return row
        return None


def _to_node(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """A Constant node in the place of an initializer; its content is read when it is saved."""

    def read() -> ir.TensorProtocol:
        return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)

    name = str(value.name)
    lazy = ir.LazyTensor(read, tensor.dtype, ir.Shape(tensor.shape.numpy()), name=name)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", lazy)], name=name)
    del graph.initializers[name]
    first = next(iter(graph), None)
    graph.insert_before(first, node) if first is not None else graph.append(node)
    node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
    ir.convenience.replace_all_uses_with(value, node.outputs[0], replace_graph_outputs=True)
    node.outputs[0].name = name
