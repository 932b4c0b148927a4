"""The guard against NaN behind a softmax, told what it guards against by the mask.

torch writes Where(IsNaN(p), 0, p) behind the softmax of a mask of -inf: a row that the mask hides
whole is NaN, and gives 0. By any other number it is not NaN; that the largest number of its row of
the mask hides says the same, once for all layers. An NPU that makes -inf a number needs it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, op_of
from rewriter.passes.mask_flow import Use
from rewriter.shapes import NodeInference

_SURE = frozenset({ir.DataType.DOUBLE, ir.DataType.FLOAT})
"""Types whose products do not overflow, so that the mask alone makes NaN."""


@dataclass(frozen=True, slots=True)
class Guard:
    """IsNaN of a softmax, and the mask that was added before it."""

    node: ir.Node
    mask: ir.Value


def guards_of(model: ir.Model, end: ir.Node, site: Use) -> list[Guard]:
    """Every guard of a softmax that one mask was added before; empty if one is of another kind."""
    node, at = site
    mask = node.inputs[at]
    plain = op_of(end) == "Softmax" and op_of(node) == "Add" and end.inputs[0] is node.outputs[0]
    known = mask is not None and mask.dtype in _SURE and mask.shape is not None
    if not plain or mask is None or not known or end.graph is not model.graph:
        return []
    weights = end.outputs[0]
    found = [user for user in weights.consumers() if op_of(user) == "IsNaN"]
    for asked in found:
        flag = asked.outputs[0]
        zeroed = [_zeroes(user, i, weights) for user, i in flag.uses()]
        if not all(zeroed) or flag.is_graph_output() or asked.graph is not model.graph:
            return []
    return [Guard(asked, mask) for asked in found]


def _zeroes(node: ir.Node, at: int, weights: ir.Value) -> bool:
    """Where(flag, 0, weights)."""
    if op_of(node) != "Where" or at != 0 or node.inputs[2] is not weights:
        return False
    zero = constant(node.inputs[1])
    return zero is not None and zero.size == 1 and not zero.numpy().any()


def ask_masks(model: ir.Model, guards: list[Guard], value: float, names: set[str]) -> None:
    """Let guards ask whether the mask hides a row whole, by a number of half the mask value."""
    known: dict[ir.Value, ir.Value] = {}
    for guard in guards:
        if guard.mask not in known:
            known[guard.mask] = _hidden_whole(model, guard.mask, value, names)
        guard.node.outputs[0].replace_all_uses_with(known[guard.mask])
        model.graph.remove(guard.node, safe=True)


def _hidden_whole(model: ir.Model, mask: ir.Value, value: float, names: set[str]) -> ir.Value:
    """Less(ReduceMax(mask), value / 2), right behind the mask."""
    graph, imports = model.graph, model.opset_imports
    axes = _stored(graph, np.array([-1]), f"{mask.name}/keys_axis", names)
    old = imports.get("", 1) < 18
    best = ir.Node(
        "", "ReduceMax", [mask] if old else [mask, axes],
        ir.convenience.convert_attributes({"keepdims": 1, **({"axes": [-1]} if old else {})}),
        name=_unique(f"{mask.name}/best", names), num_outputs=1,
    )  # fmt: skip
    assert mask.dtype is not None
    half = np.array(value / 2, mask.dtype.numpy())
    bound = _stored(graph, half, f"{mask.name}/hides", names)
    less = ir.Node(
        "", "Less", [best.outputs[0], bound], name=_unique(f"{mask.name}/whole", names),
        num_outputs=1,
    )  # fmt: skip
    made, nodes = mask.producer(), [best, less]
    first = next(iter(graph))
    if made is not None and made.graph is graph:
        graph.insert_after(made, nodes)
    else:
        graph.insert_before(first, nodes)
    for node in nodes:
        node.outputs[0].name = node.name
        NodeInference(imports)(node)
    return less.outputs[0]


def _stored(graph: ir.Graph, array: np.ndarray, name: str, names: set[str]) -> ir.Value:
    tensor = ir.tensor(array, name=_unique(name, names))
    value = ir.Value(
        name=tensor.name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(array.shape),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


def _unique(name: str, names: set[str]) -> str:
    candidate, count = name, 0
    while candidate in names:
        count += 1
        candidate = f"{name}_{count}"
    names.add(candidate)
    return candidate
