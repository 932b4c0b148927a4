"""An attention mask for a model that has none: its caches of fixed size are not full at first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from rewriter.nodes import op_of, present, static_dims
from rewriter.passes.caches import Cache
from rewriter.passes.stored import stored

MASK = "attention_mask"
_MASKS = {"Attention": (3,), "com.microsoft::MultiHeadAttention": (4, 5)}
"""Inputs that are masks, of attentions that have a past; a padding mask is the first."""


def lacks_mask(model: ir.Model, growing: Iterable[Cache]) -> bool:
    """Whether there is no mask at all, and every attention could be given one."""
    if any(value.name == MASK for value in model.graph.inputs):
        return False
    nodes = [node for cache in growing for node, _ in cache.uses]
    return all(
        op_of(node) in _MASKS
        and not any(present(value) for i in _MASKS[op_of(node)] for value in node.inputs[i : i + 1])
        for node in nodes
    )


def add_mask(model: ir.Model, growing: Iterable[Cache], tokens: int) -> None:
    """Give a model the input ``attention_mask`` (B, C + S), int64, and its attentions what it says.

    Args:
        model: edited in place; its dims are fixed.
        growing: its caches.
        tokens: S.
    """
    found = list(growing)
    batch, _, rows, _ = static_dims(found[0].past)
    mask = ir.Value(
        name=MASK, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([batch, rows + tokens])
    )
    model.graph.inputs.append(mask)
    made: dict[str, ir.Value] = {}
    for node in dict.fromkeys(node for cache in found for node, _ in cache.uses):
        op = op_of(node)
        if op not in made:
            build = _seen if op == "Attention" else _padding
            made[op] = build(model, mask, tokens)
        at = _MASKS[op][0]
        if len(node.inputs) <= at:
            node.resize_inputs(at + 1)
        node.replace_input_with(at, made[op])


def _seen(model: ir.Model, mask: ir.Value, tokens: int) -> ir.Value:
    """Bools (B, 1, S, C + S); ONNX Runtime's Attention repeats no row of a mask."""
    batch, total = static_dims(mask)
    flags = _node(model, "Cast", [mask], ir.DataType.BOOL, (batch, total), to=ir.DataType.BOOL)
    axes = stored(model, f"{MASK}/axes", np.array([1, 2]))
    column = _node(model, "Unsqueeze", [flags, axes], ir.DataType.BOOL, (batch, 1, 1, total))
    shape = (batch, 1, tokens, total)
    full = stored(model, f"{MASK}/shape", np.array(shape))
    return _node(model, "Expand", [column, full], ir.DataType.BOOL, shape)


def _padding(model: ir.Model, mask: ir.Value, _tokens: int) -> ir.Value:
    """``key_padding_mask`` (B, C + S), int32."""
    return _node(model, "Cast", [mask], ir.DataType.INT32, static_dims(mask), to=ir.DataType.INT32)


def _node(
    model: ir.Model,
    op: str,
    inputs: list[ir.Value],
    dtype: ir.DataType,
    shape: tuple[int, ...],
    **attributes: int,
) -> ir.Value:
    """A node behind those that are there, before all that read it once the graph is sorted."""
    node = ir.node(op, inputs, attributes, name=f"{MASK}/{op}")
    output = node.outputs[0]
    output.name, output.type, output.shape = (
        f"{MASK}/{op}_out",
        ir.TensorType(dtype),
        ir.Shape(shape),
    )
    made = inputs[0].producer()
    if made is not None:
        model.graph.insert_after(made, node)
    else:
        model.graph.insert_before(model.graph[0], node)
    return output
