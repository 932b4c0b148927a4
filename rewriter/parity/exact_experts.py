"""QMoE of 2 bits in a form that ORT CPU computes without tables.

Its kernel looks blocks of 32 and more up in tables of rounded sums (0.3 to 2 % off, measured);
blocks of 16 it does not. The same codes in blocks of 16, each scale and zero point repeated, are
the same function.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter import packing
from rewriter.nodes import constant, op_of
from rewriter.schemas import schema_of

_QMOE = "com.microsoft::QMoE"
_BLOCK = 16


def split_blocks(model: ir.Model) -> int:
    """Split the blocks of 2-bit QMoE in place; returns of how many nodes."""
    found = 0
    for graph in model.graphs():
        for node in graph:
            block = node.attributes.get("block_size")
            bits = node.attributes.get("expert_weight_bits")
            if op_of(node) != _QMOE or bits is None or bits.as_int() != 2:
                continue
            if block is not None and block.as_int() > _BLOCK and _split(node, block.as_int()):
                node.attributes.add(ir.AttrInt64("block_size", _BLOCK))
                found += 1
    return found


def _split(node: ir.Node, block: int) -> bool:
    """Repeat scales and zero points, if all of them are stored."""
    names = schema_of(_QMOE, 1).inputs
    given = {
        name: (at, value)
        for at, (name, value) in enumerate(zip(names, node.inputs, strict=False))
        if value is not None and name.endswith(("_scales", "_zero_points"))
    }
    if any(constant(value) is None for _, value in given.values()):
        return False
    times = block // _BLOCK
    for name, (at, value) in given.items():
        blocks = given[name.replace("zero_points", "scales")][1].shape
        assert blocks is not None
        count = int(str(blocks[-1]))
        repeat = _points(times, count) if name.endswith("_zero_points") else _scales(times)
        node.replace_input_with(at, changed(node, value, repeat, f"blocks of {_BLOCK}"))
    return True


def _scales(times: int) -> Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]]:
    return lambda array: np.repeat(array, times, axis=-1)


def _points(times: int, count: int) -> Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]]:
    def repeat(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        loose = packing.unpack_bits(array.astype(np.uint8), 2, count)
        return packing.pack_bits(np.repeat(loose, times, axis=-1), 2)

    return repeat


def changed(
    node: ir.Node,
    value: ir.Value,
    change: Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]],
    label: str,
    dtype: ir.DataType | None = None,
) -> ir.Value:
    """A stored input of a node with other content (of another type), under a name of its own."""
    stored, graph = constant(value), node.graph
    assert stored is not None
    assert isinstance(graph, ir.Graph)
    name = f"{value.name}/{label}"
    if name not in graph.initializers:
        tensor = ir.tensor(
            change(np.asarray(stored.numpy())), dtype=dtype or stored.dtype, name=name
        )
        shape, type_ = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        graph.register_initializer(ir.Value(name=name, shape=shape, type=type_, const_value=tensor))
    return graph.initializers[name]
