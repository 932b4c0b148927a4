"""A float32 model that rounds as HTP does: what such arithmetic costs on a graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from rewriter.nodes import op_of

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
_LARGEST = float(np.finfo(np.float16).max)

FUNCTION_BITS = {
    "Softplus": 6,
    "Mish": 6,
    "Gelu": 7,
    "LogSoftmax": 7,
    "Swish": 7,
    "Tanh": 7,
    "Cos": 8,
    "Elu": 8,
    "HardSwish": 8,
    "Selu": 8,
    "Sigmoid": 8,
    "Sin": 8,
    "Softmax": 8,
}
"""Bits to which HTP's functions are right, where that is fewer than float16 has: 2^-bits of the
value, or of 1 where that is less. Largest errors measured on QNN 2.7.0 after a MatMul, on [-6, 6]:
Softplus 1.4e-2, Mish 2.3e-2, Tanh 7.4e-3, Gelu 7.8e-3, LogSoftmax 1.0e-2, Swish 6e-3 up to 2,
Sigmoid 3.7e-3, Sin, Cos and HardSwish 4e-3, Elu 3.9e-3, Selu 5e-3, Softmax 5e-3 of the value. Exp,
Log, Sqrt, Reciprocal, products and sums are as float16 has them."""


def in_half(model: ir.Model) -> ir.Model:
    """A float32 model that computes as HTP does: every float is rounded to float16.

    Constants, inputs and what lies between nodes are rounded; sums inside a node are not, as the
    accumulators are wider than what is stored. Functions are off by :data:`FUNCTION_BITS`.
    Constants saturate: a mask of the lowest float32 is to hide, not to make NaN.

    Args:
        model: is left as it is; values of unknown type are not rounded. Its outputs are for the
            caller to round: they keep their names.
    """
    copy = model.clone()
    if copy.functions:
        copy = InlinePass()(copy).model
    for graph in copy.graphs():
        for value in list(graph.initializers.values()):
            if value.const_value is not None and value.dtype == F32:
                value.const_value = _rounded(value.const_value)
        fed = [value for value in graph.inputs if not value.is_initializer()]
        made = [value for node in graph for value in node.outputs]
        for value in (v for v in (*fed, *made) if v.dtype == F32):
            _round_for_readers(graph, value)
    return copy


def _rounded(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    def read() -> ir.TensorProtocol:
        clipped = np.clip(tensor.numpy(), -_LARGEST, _LARGEST)
        return ir.tensor(clipped.astype(np.float16).astype(np.float32), name=tensor.name)

    return ir.LazyTensor(read, F32, ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _round_for_readers(graph: ir.Graph, value: ir.Value) -> None:
    """Nodes after a value; other nodes read what comes out of them, outputs the value itself."""
    readers = list(value.uses())
    if not readers:
        return
    chain = _Chain(value)
    producer = value.producer()
    bits = None if producer is None else FUNCTION_BITS.get(op_of(producer))
    if bits is not None:
        chain.add("Add", value, chain.approximation(2.0**-bits))
    narrow = chain.add("Cast", chain.last, to=F16)
    last = chain.add("Cast", narrow, to=F32)
    for node, index in readers:
        node.replace_input_with(index, last)
    for constant in chain.constants:
        graph.register_initializer(constant)
    if producer is None:
        graph.insert_before(graph[0], chain.nodes)
    else:
        graph.insert_after(producer, chain.nodes)


class _Chain:
    """Nodes behind a value, named after it."""

    def __init__(self, value: ir.Value) -> None:
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self._of = self.last = value

    def add(self, op: str, *inputs: ir.Value, to: ir.DataType | None = None) -> ir.Value:
        attributes = {} if to is None else {"to": int(to)}
        name = f"{self._of.name}/half{len(self.nodes)}"
        node = ir.node(op, list(inputs), attributes, name=name)
        self.nodes.append(node)
        self.last = node.outputs[0]
        self.last.name, self.last.shape = name, self._of.shape
        self.last.type = ir.TensorType(to or F32)
        return self.last

    def approximation(self, size: float) -> ir.Value:
        """An error of a size, up and down by the value: it repeats, and has no mean."""
        value = self._of
        phase = self.add("Sin", self.add("Mul", value, self._scalar(1024.0)))
        least = self.add("Min", self.add("Abs", value), self._scalar(1.0))
        return self.add("Mul", self.add("Mul", least, self._scalar(size)), phase)

    def _scalar(self, number: float) -> ir.Value:
        name = f"{self._of.name}/half/const{len(self.constants)}"
        tensor = ir.tensor(np.float32(number), name=name)
        value = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(F32), const_value=tensor)
        self.constants.append(value)
        return value
