"""Models in half precision, made of those in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from rewriter.parity.trial import Side

F32, F16, BF16 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16


def halved(model: ir.Model, half: ir.DataType = F16) -> ir.Model:
    """Every float32 constant and value as a half; the model is edited in place."""
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [value for node in model.graph for value in node.outputs]
    for value in values:
        if value.dtype == F32:
            value.type = ir.TensorType(half)
        if value.const_value is not None and value.const_value.dtype == F32:
            narrow = value.const_value.numpy().astype(half.numpy())
            value.const_value = ir.tensor(narrow, dtype=half, name=value.name)
    return model


def side(model: ir.Model, folder: Path, name: str) -> Side:
    """A model as a file, as it is compared."""
    path = folder / f"{name}.onnx"
    ir.save(model, path)
    return Side(ir.load(path), path)


def scaled(model: ir.Model, attribute: str, factor: float) -> ir.Model:
    """The model with an attribute of every node that has it off by a factor."""
    for node in model.graph:
        if attribute in node.attributes:
            wrong = node.attributes[attribute].as_float() * factor
            node.attributes.add(ir.AttrFloat32(attribute, float(np.float32(wrong))))
    return model


def typed(model: ir.Model) -> ir.Model:
    """The model with the types that ONNX infers."""
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model)))
