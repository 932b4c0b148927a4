"""Bytes that running a graph once moves from and to memory, estimated from what it stores.

A token costs what is read for it: an NPU keeps no weight from one run to the next, so every weight
is read once in a run, and a run of one token reads all of them. What is read in part is counted in
part: rows that are looked up, and experts that are chosen. Values in between are taken to stay on
the chip. QNN 2.4.0, which prints its own count, reads and writes 0 to 6 % less for MatMulNBits (4
and 8 bits, with and without zero points, K x N = 512 x 1024 and 1024 x 2048), and half as much for
float32 weights, which HTP holds in 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.nodes import constant, dims_of, op_of

_IDS = ("input_ids", "inputs_embeds")
"""Inputs whose first two dims are sequences and tokens."""
_TABLES = {"Gather": 0, "com.microsoft::GatherBlockQuantized": 0}
_EXPERTS = frozenset({"com.microsoft::MoE", "com.microsoft::QMoE"})


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one run of a graph.

    Attributes:
        weights: bytes of constants that are read.
        interface: bytes of inputs and outputs, caches among them; those of open sizes left out.
        tokens: that one run is for; 0 where that is not known.
    """

    weights: int
    interface: int
    tokens: int

    @property
    def per_token(self) -> int:
        """Bytes for one token."""
        return (self.weights + self.interface) // max(self.tokens, 1)


def traffic(model: ir.Model) -> Traffic:
    """What one run of a model moves, each constant read once."""
    read: dict[int, int] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for key, size in _reads(node):
            read[key] = max(read.get(key, 0), size)
    values = [*model.graph.inputs, *model.graph.outputs]
    interface = sum(_size(value) for value in dict.fromkeys(values))
    return Traffic(sum(read.values()), interface, _tokens(model))


def bytes_read(node: ir.Node) -> int:
    """Bytes of constants that one node reads in a run."""
    return sum(size for _, size in _reads(node))


def _reads(node: ir.Node) -> Iterator[tuple[int, int]]:
    """Constants of a node and the bytes read of each."""
    part = _part(node)
    for value in node.inputs:
        stored = constant(_unshaped(value))
        if stored is not None:
            yield id(stored), min(stored.nbytes, math.ceil(stored.nbytes * part))


def _unshaped(value: ir.Value | None) -> ir.Value | None:
    """What a Reshape only names in other dims."""
    producer = None if value is None else value.producer()
    while producer is not None and producer.op_type == "Reshape" and not producer.domain:
        value = producer.inputs[0]
        producer = None if value is None else value.producer()
    return value


def _part(node: ir.Node) -> float:
    """Which part of its constants a node reads."""
    op = op_of(node)
    if op in _TABLES:
        table, ids = (dims_of(value) if value is not None else None for value in node.inputs[:2])
        given = node.attributes.get("axis" if op == "Gather" else "gather_axis")
        axis = given.as_int() if given is not None else 0
        if table and table[axis] and ids is not None:
            return math.prod(d or 1 for d in ids) / (table[axis] or 1)
    if op in _EXPERTS:
        experts, tokens = (dims_of(value) if value else None for value in node.inputs[1::-1])
        chosen = node.attributes.get("k")
        count = 1 if chosen is None else chosen.as_int()
        if experts and experts[-1] and tokens is not None:
            return min(1.0, count * math.prod(d or 1 for d in tokens[:-1]) / experts[-1])
    return 1.0


def _size(value: ir.Value) -> int:
    dims = dims_of(value)
    if dims is None or None in dims or value.dtype is None:
        return 0
    return math.ceil(math.prod(d for d in dims if d is not None) * value.dtype.itemsize)


def _tokens(model: ir.Model) -> int:
    for value in model.graph.inputs:
        dims = dims_of(value)
        if value.name in _IDS and dims and len(dims) > 1 and None not in dims[:2]:
            return math.prod(d for d in dims[:2] if d is not None)
    return 0
