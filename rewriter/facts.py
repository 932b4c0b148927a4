"""Facts of a node: what the table and the rules are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import onnx_ir as ir

from capabilities import Facts, Target, Tensor
from rewriter.nodes import attributes_of, constant, dims_of, op_of, opset_of, present
from rewriter.opsets import differs
from rewriter.schemas import schema_of
from rewriter.traits import traits_of
from rewriter.unit_types import activations_of

_SMALL = 64
"""Constants up to this many elements are looked at for being uniform; zero points always are."""


def facts_of(node: ir.Node, imports: Mapping[str, int], target: Target | None = None) -> Facts:
    """Facts of a node in its model.

    Args:
        node: the node.
        imports: opset imports of the graph or function the node is in.
        target: whose options and highest opset count.
    """
    op = op_of(node)
    opset = opset_of(op, imports)
    schema = schema_of(op, opset)
    inputs = {
        (name := schema.input_name(i)): _tensor(value, name)
        for i, value in enumerate(node.inputs)
        if value is not None and present(value)
    }
    outputs = {
        schema.output_name(i): _tensor(value, "")
        for i, value in enumerate(node.outputs)
        if present(value)
    }
    facts = Facts(
        op=op,
        opset=opset,
        attributes=attributes_of(node, opset),
        inputs=inputs,
        outputs=outputs,
        standard=schema.standard,
        activations=activations_of(node, op),
        traits=traits_of(node, op, imports),
        options=target.options if target else {},
    )
    if target is None or target.opset is None or not schema.standard:
        return facts
    return replace(facts, newer=opset > target.opset and differs(facts, target.opset))


def _tensor(value: ir.Value, name: str) -> Tensor:
    stored = constant(value)
    producer = value.producer()
    return Tensor(
        dtype=_dtype_name(value.dtype),
        shape=dims_of(value),
        const=stored is not None,
        uniform=_uniform(stored, name),
        source="" if producer is None else op_of(producer),
        boundary=value.is_graph_input() or value.is_graph_output(),
    )


@cache
def _dtype_name(dtype: ir.DataType | None) -> str:
    return "" if dtype is None else dtype.name.lower()


def _uniform(stored: ir.TensorProtocol | None, name: str) -> float | None:
    if stored is None or not (name.endswith("zero_point") or 0 < stored.size <= _SMALL):
        return None
    if stored.dtype == ir.DataType.STRING or stored.size == 0:
        return None
    array = stored.numpy()
    first = array.reshape(-1)[0]
    return float(first) if bool(np.all(array == first)) else None
