"""A copy of a model that computes in float32 what it computed in float16 or bfloat16.

Nothing is lost: float32 holds every number of the others. What differs is that nothing is rounded
between nodes any more, a Cast to float16 included, and that what overflowed does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from rewriter.nodes import op_of

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

_NAMES_A_TYPE = frozenset(
    {
        "to",  # Cast
        "dtype",  # RandomNormal, EyeLike, Bernoulli, SequenceEmpty, ...
        "output_dtype",  # DequantizeLinear
        "output_datatype",  # HannWindow and its kin
        "precision",  # QuantizeLinear
        "softmax_precision",  # Attention
        "stash_type",  # the norms, Range
    }
)
"""Attributes whose integer is an element type."""


class NotWidenable(ValueError):
    """A model means the bits of its halves, not the numbers; the message says where."""


def half_of(model: ir.Model) -> ir.DataType | None:
    """The coarsest half-precision type that a model has values of, in any of its graphs."""
    found: set[int | None] = set()
    for graph in _graphs(model):
        found |= {value.dtype for value in _values(graph)}
        for node in graph:  # values in between may have no type yet
            for attribute in node.attributes.values():
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.INT and attribute.name in _NAMES_A_TYPE:
                    found.add(attribute.as_int())
                elif attribute.type == ir.AttributeType.TENSOR:
                    found.add(attribute.as_tensor().dtype)
    return next((half for half in reversed(HALVES) if half in found), None)


def widened(model: ir.Model) -> ir.Model:
    """A copy in float32, its constants widened when they are read; functions are inlined.

    Args:
        model: is left as it is, and shares the constants of other types.

    Raises:
        NotWidenable: a BitCast reads or makes a half.
    """
    copy = model.clone()
    if copy.functions:
        copy = InlinePass()(copy).model
    for graph in copy.graphs():
        for value in _values(graph):
            _widen_value(value)
        for node in graph:
            if op_of(node) == "BitCast":
                raise NotWidenable(f"BitCast '{node.name}' may mean the bits of a half")
            for attribute in list(node.attributes.values()):
                node.attributes.add(_widened_attribute(attribute))
    return copy


def widened_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Halves as float32, anything else as it is."""
    half = array.dtype in {half.numpy() for half in HALVES}
    return array.astype(np.float32) if half else array


def _graphs(model: ir.Model) -> list[ir.Graph | ir.Function]:
    return [*model.graphs(), *model.functions.values()]


def _values(graph: ir.Graph | ir.Function) -> list[ir.Value]:
    stored = list(graph.initializers.values()) if isinstance(graph, ir.Graph) else []
    return [*graph.inputs, *stored, *(value for node in graph for value in node.outputs)]


def _widen_value(value: ir.Value) -> None:
    value.type = _widened_type(value.type)
    if value.const_value is not None:
        value.const_value = _widened_tensor(value.const_value)


def _widened_type(of: ir.TypeProtocol | None) -> ir.TypeProtocol | None:
    """The same type around float32: of a tensor, a sequence of them, an optional one."""
    if isinstance(of, ir.SequenceType | ir.OptionalType):
        inner = _widened_type(of.elem_type)
        assert inner is not None
        return type(of)(inner)
    if of is None or of.dtype not in HALVES:
        return of
    assert isinstance(of, ir.TensorType | ir.SparseTensorType)
    return type(of)(ir.DataType.FLOAT)


def _widened_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if tensor.dtype not in HALVES:
        return tensor

    def read() -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)

    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(read, ir.DataType.FLOAT, shape, name=tensor.name)


def _widened_attribute(attribute: ir.Attr) -> ir.Attr:
    kinds, name = ir.AttributeType, attribute.name
    if attribute.is_ref():
        return attribute
    if attribute.type == kinds.INT and name in _NAMES_A_TYPE and attribute.as_int() in HALVES:
        return ir.AttrInt64(name, int(ir.DataType.FLOAT))
    if attribute.type == kinds.TENSOR:
        return ir.AttrTensor(name, _widened_tensor(attribute.as_tensor()))
    if attribute.type == kinds.TENSORS:
        return ir.AttrTensors(name, [_widened_tensor(t) for t in attribute.as_tensors()])
    if attribute.type == kinds.TYPE_PROTO:
        held = attribute.value
        known = ir.TypeAndShape(_widened_type(held.type), held.shape)
        return ir.Attr(name, kinds.TYPE_PROTO, known)
    return attribute
