"""The builder of the small models that are probed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.probe.operands import Array, Operand, data_type
from rewriter.schemas import split_op
from rewriter.shapes import NodeInference, NoShape

_IR_VERSION = 10
Given = ir.Value | Operand | None


class Graph:
    """Nodes in order; every operand gets a value of its own, and what is fed its numbers.

    Args:
        dtype: the case's type, by its word.
        opset: of ai.onnx.
        rng: all numbers come from it, in the order in which operands are named.

    Attributes:
        feeds: the numbers of the graph's inputs.
    """

    def __init__(self, dtype: str, opset: int, rng: np.random.Generator) -> None:
        self.dtype = data_type(dtype)
        self.feeds: dict[str, Array] = {}
        self._imports = {"": opset, "com.microsoft": 1}
        self._rng = rng
        self._infer = NodeInference(self._imports)
        self._inputs: list[ir.Value] = []
        self._stored: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._names: Counter[str] = Counter()

    def add(self, operand: Operand) -> ir.Value:
        """The value of an operand, for one that several nodes read.

        What numpy cannot hold (bfloat16, int4) is fed in a wider type and cast.
        """
        dtype = data_type(operand.dtype) if operand.dtype else self.dtype
        carrier = _carrier(dtype)
        if carrier is not None and not operand.stored:
            fed = replace(operand, dtype=carrier.name.lower())
            return self.op("Cast", fed, to=int(dtype))
        array = operand.array(self._rng, dtype)
        shape = array.shape if operand.stored else operand.shape
        name = self._name("w" if operand.stored else "x")
        made = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))
        if operand.stored:
            made.const_value = ir.tensor(array, dtype=dtype, name=name)
            self._stored.append(made)
        else:
            self.feeds[name] = array
            self._inputs.append(made)
        return made

    def op(self, op: str, *inputs: Given, **attributes: Any) -> ir.Value:
        """A node ``domain::Type`` with one output; an attribute that is None is left out."""
        return self.ops(op, inputs, attributes)[0]

    def ops(
        self, op: str, inputs: Sequence[Given], attributes: Mapping[str, Any], outputs: int = 1
    ) -> Sequence[ir.Value]:
        """A node with any number of outputs."""
        domain, op_type = split_op(op)
        while inputs and inputs[-1] is None:  # a file names no input behind the last one given
            inputs = inputs[:-1]
        given = {name: value for name, value in attributes.items() if value is not None}
        node = ir.Node(
            domain,
            op_type,
            [self.add(one) if isinstance(one, Operand) else one for one in inputs],
            ir.convenience.convert_attributes(given),
            num_outputs=outputs,
            name=self._name(op_type),
        )
        for output in node.outputs:
            output.name = self._name("y")
        self._nodes.append(node)
        try:
            self._infer(node)
        except NoShape:  # what the runtime makes of it is what is asked
            for output in node.outputs:
                output.type = output.type or ir.TensorType(self.dtype)
        return node.outputs

    def model(self, outputs: Sequence[ir.Value]) -> ir.Model:
        """The model with these outputs, in types that numpy holds."""
        carriers = [_carrier(value.dtype) for value in outputs]
        graph = ir.Graph(
            self._inputs,
            [
                value if carrier is None else self.op("Cast", value, to=int(carrier))
                for value, carrier in zip(outputs, carriers, strict=True)
            ],
            nodes=self._nodes,
            initializers=self._stored,
            opset_imports=self._imports,
            name="case",
        )
        return ir.Model(graph, ir_version=_IR_VERSION, producer_name="rewrite probe")

    def _name(self, word: str) -> str:
        self._names[word] += 1
        return f"{word}{self._names[word]}"


def _carrier(dtype: ir.DataType | None) -> ir.DataType | None:
    """The type in which a runtime is fed what numpy has no type for."""
    if dtype is None or dtype.numpy().isbuiltin == 1:
        return None
    return ir.DataType.INT8 if dtype.is_integer() else ir.DataType.FLOAT
