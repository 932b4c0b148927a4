"""Products of integers in a form that ORT CPU computes without saturation.

On a processor without VNNI its kernels add two products of unsigned by signed codes in 16 bits:
8 % off (measured on AVX2). Unsigned by unsigned codes they add in 32. A signed weight w with zero
point z is the unsigned one w + 128 with z + 128: w - z is what is multiplied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import constant, op_of
from rewriter.parity.exact_experts import changed
from rewriter.schemas import schema_of

_U8 = ir.DataType.UINT8
_WEIGHTS = {
    "ConvInteger": ("w", "w_zero_point"),
    "MatMulInteger": ("B", "b_zero_point"),
    "com.microsoft::DynamicQuantizeMatMul": ("B", "b_zero_point"),
    "com.microsoft::MatMulIntegerToFloat": ("B", "b_zero_point"),
}
"""Inputs of the ops: the weight, and its zero point."""


def unsigned_weights(model: ir.Model) -> int:
    """Make stored signed weights unsigned, in place; returns of how many nodes."""
    return sum(_unsigned(node) for graph in model.graphs() for node in graph)


def _unsigned(node: ir.Node) -> bool:
    op = op_of(node)
    if op not in _WEIGHTS:
        return False
    weight, point = (schema_of(op, 13).inputs.index(name) for name in _WEIGHTS[op])
    codes = node.inputs[weight]
    given = node.inputs[point] if point < len(node.inputs) else None
    if codes is None or codes.dtype != ir.DataType.INT8 or constant(codes) is None:
        return False
    if given is not None and constant(given) is None:
        return False
    if point >= len(node.inputs):
        node.resize_inputs(point + 1)
    node.replace_input_with(weight, changed(node, codes, _moved, "unsigned", _U8))
    if given is not None:
        node.replace_input_with(point, changed(node, given, _moved, "unsigned", _U8))
    else:
        node.replace_input_with(point, changed(node, codes, _middle, "middle", _U8))
    return True


def _moved(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return (array.astype(np.int16) + 128).astype(np.uint8)


def _middle(_array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.array(128, np.uint8)
