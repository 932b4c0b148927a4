"""How quantized weights are stored, and what is computed with them: two facts, often confused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.nodes import attributes_of, constant, op_of
from rewriter.traffic import bytes_read

_PACKED = {
    "com.microsoft::MatMulNBits": ("B", "bits", "block_size"),
    "com.microsoft::GatherBlockQuantized": ("data", "bits", "block_size"),
    "com.microsoft::QMoE": ("fc1_experts_weights", "expert_weight_bits", "block_size"),
}
"""Ops that hold a packed weight: how they call it, its width, and its blocks."""

_FLOAT = "floats: dequantized before the product"


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """One weight that is stored as integers.

    Attributes:
        node: that reads it.
        stored: bits in the file, and what shares a scale.
        computed: what the product is of, by the form of the graph.
        bytes: of codes, scales and zero points that one run reads of it.
    """

    node: str
    stored: str
    computed: str
    bytes: int = 0


def quantized_weights(model: ir.Model) -> list[QuantizedWeight]:
    """Every quantized weight of a model, by the node that reads it."""
    return [found for graph in model.graphs() for node in graph for found in _of(node, model)]


def _of(node: ir.Node, model: ir.Model) -> Iterator[QuantizedWeight]:
    op, name = op_of(node), node.name or ""
    if op in _PACKED:
        _, bits, block = _PACKED[op]
        given = attributes_of(node, model.opset_imports.get(node.domain, 1))
        shared = f"blocks of {given[block]}" if given.get(block) else "rows"
        computed = "floats: looked up, then dequantized" if "Gather" in op else _FLOAT
        stored_as = f"{given.get(bits) or 4} bits, {shared}"
        yield QuantizedWeight(name, stored_as, computed, bytes_read(node))
    elif op == "DequantizeLinear" and (stored := constant(node.inputs[0])) is not None:
        width = stored.dtype.bitwidth if stored.dtype.is_integer() else 0
        if width and stored.size > 1:
            stored_as = f"{width} bits, {_shared(node)}"
            yield QuantizedWeight(name, stored_as, _computed(node), bytes_read(node))


def _shared(node: ir.Node) -> str:
    scale = node.inputs[1]
    shape = () if scale is None or scale.shape is None else tuple(scale.shape)
    if not shape or shape == (1,):
        return "one scale"
    block = node.attributes.get("block_size")
    return f"blocks of {block.value}" if block is not None and block.value else "channels"


def _computed(node: ir.Node) -> str:
    """Integers where what meets the weight was quantized right before, too."""
    for user, index in node.outputs[0].uses():
        for i, other in enumerate(user.inputs):
            producer = other.producer() if other is not None and i != index else None
            if producer is None or producer.op_type != "DequantizeLinear":
                continue
            codes, *_, zero = producer.inputs
            quantized = codes is not None and codes.producer() is not None
            if quantized and zero is not None and zero.dtype is not None:
                return f"integers: activations of {zero.dtype.bitwidth} bits"
    return _FLOAT
