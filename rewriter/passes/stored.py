"""Constants that passes add to a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import constant


def stored(
    model: ir.Model, name: str, array: npt.NDArray[np.generic], dtype: ir.DataType | None = None
) -> ir.Value:
    """An initializer of the main graph; one of that name and number that is there is taken.

    Args:
        model: gets it.
        name: of it, unless something else has that name.
        array: the numbers.
        dtype: of what is stored; the array's if not given.
    """
    wanted = dtype or ir.DataType.from_numpy(array.dtype)
    array = array.astype(wanted.numpy())
    taken = {v.name for graph in model.graphs() for node in graph for v in node.outputs}
    taken |= {value.name for graph in model.graphs() for value in graph.inputs}
    while name in taken or name in model.graph.initializers:
        there = model.graph.initializers.get(name)
        tensor = None if there is None else constant(there)
        same = tensor is not None and tensor.dtype == wanted and tensor.shape == array.shape
        if same and tensor is not None and np.array_equal(tensor.numpy(), array):
            assert there is not None
            return there
        name += "_"
    kept = ir.tensor(array, dtype=wanted, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(wanted), shape=ir.Shape(array.shape), const_value=kept
    )
    model.graph.register_initializer(value)
    return value
