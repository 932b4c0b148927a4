"""Shape inference of com.microsoft ops that onnx-shape-inference does not know."""

from __future__ import annotations

import onnx_ir as ir
import onnx_shape_inference as inference


def _packed(node: ir.Node, data: ir.Value) -> int:
    """Elements of the logical last axis that one stored element holds."""
    bits = node.attributes.get("bits")
    return 8 // (bits.as_int() if bits is not None else 4) if data.dtype == ir.DataType.UINT8 else 1


def _gather_block_quantized(ctx: inference.ShapeInferenceContext, node: ir.Node) -> None:
    """Data with its gather axis replaced by the indices; the quantized axis unpacked."""
    data, indices, scales = node.inputs[0], node.inputs[1], node.inputs[2]
    if data is None or indices is None or scales is None:
        return
    if scales.dtype is not None:
        ctx.set_dtype(node.outputs[0], scales.dtype)
    if data.shape is None or indices.shape is None:
        return
    dims = list(data.shape.dims)
    axis = node.attributes.get("gather_axis")
    at = (axis.as_int() if axis is not None else 0) % len(dims)
    last = dims[-1]
    dims[-1] = last * _packed(node, data) if isinstance(last, int) else ir.SymbolicDim(None)
    ctx.set_shape(node.outputs[0], ir.Shape([*dims[:at], *indices.shape.dims, *dims[at + 1 :]]))


def register() -> None:
    """Add what is missing, once."""
    if not inference.registry.has("com.microsoft", "GatherBlockQuantized"):
        inference.registry.register("com.microsoft", "GatherBlockQuantized", since_version=1)(
            _gather_block_quantized
        )
