"""What a graph computes from what: nodes in order, constants left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from rewriter.nodes import constant, present

_PRODUCTS = frozenset({
    "Conv", "ConvTranspose", "DynamicQuantizeMatMul", "Einsum", "FusedMatMul", "Gemm", "Loop",
    "MatMul", "MatMulBnb4", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "MoE",
    "QLinearConv", "QLinearMatMul", "QMoE", "Scan",
})  # fmt: skip
_DENSE = frozenset({"FusedMatMul", "MatMul"})
_DRAWN = frozenset({"Bernoulli", "Dropout", "Multinomial"})
_LAYOUT = frozenset({
    "Cast", "DequantizeLinear", "Expand", "Gather", "GatherBlockQuantized", "GatherND", "Identity",
    "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip


class Flow:
    """The nodes of a graph by number, producers first, and the edges between them.

    Attributes:
        model: whose graph it is.
        nodes: in the order of the graph.
        before: of each node, the nodes that compute its inputs; without those that are fixed.
        after: of each node, the nodes that read its outputs.
        fixed: nodes that depend on constants alone.
        heavy: nodes that are a product, or depend on one.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.nodes: list[ir.Node] = list(model.graph)
        self._at = {value: i for i, node in enumerate(self.nodes) for value in node.outputs}
        self.fixed: set[int] = set()
        self.heavy: set[int] = set()
        self.before: list[list[int]] = []
        self.after: list[list[int]] = [[] for _ in self.nodes]
        self._reads = [[v for v in _read(node) if constant(v) is None] for node in self.nodes]
        for i, node in enumerate(self.nodes):
            made = [self._at[v] for v in self._reads[i] if v in self._at]
            self.before.append(sorted({j for j in made if j not in self.fixed}))
            if len(made) == len(self._reads[i]) and not self.before[i] and repeatable(node):
                self.fixed.add(i)
            elif _product(node) or any(j in self.heavy for j in self.before[i]):
                self.heavy.add(i)
            for j in self.before[i]:
                self.after[j].append(i)
        self._stored: list[frozenset[ir.Value]] = []
        for node in self.nodes:
            read = _read(node)
            above = [self._stored[self._at[v]] for v in read if self._at.get(v) in self.fixed]
            self._stored.append(frozenset(v for v in read if constant(v) is not None).union(*above))

    def stored(self, nodes: Iterable[int]) -> frozenset[ir.Value]:
        """The constants that some nodes need."""
        return frozenset[ir.Value]().union(*(self._stored[i] for i in nodes))

    def reads(self, i: int) -> list[ir.Value]:
        """What a node reads, in its inner graphs too, without stored constants."""
        return self._reads[i]

    def makers(self, i: int) -> list[int]:
        """The nodes that compute what a node reads, constants too."""
        return [self._at[v] for v in _read(self.nodes[i]) if v in self._at]

    def maker(self, value: ir.Value | None) -> int | None:
        """The node that computes a value; none of inputs and of what is fixed."""
        i = None if value is None else self._at.get(value)
        return None if i is None or i in self.fixed else i

    def source(self, value: ir.Value) -> int | None:
        """The node that computes a value, fixed or not."""
        return self._at.get(value)

    def is_fixed(self, value: ir.Value | None) -> bool:
        """Whether a value is missing, stored, or computed from constants alone."""
        if value is None or not present(value) or constant(value) is not None:
            return True
        return self._at.get(value) in self.fixed

    def product(self, i: int) -> bool:
        """Whether a node multiplies matrices."""
        return _product(self.nodes[i])

    def mixes(self, i: int) -> bool:
        """Whether a node multiplies two matrices that are both no weights."""
        node = self.nodes[i]
        return node.op_type in _DENSE and not any(self._weight(v) for v in node.inputs[:2])

    def fused(self, i: int) -> bool:
        """Whether a node is an attention of its own."""
        return "Attention" in self.nodes[i].op_type

    def _weight(self, value: ir.Value | None) -> bool:
        """Whether the numbers of a value are stored, if only picked at run time."""
        while value is not None and not self.is_fixed(value):
            i = self._at.get(value)
            if i is None or self.nodes[i].op_type not in _LAYOUT:
                return False
            value = self.nodes[i].inputs[0]
        return True


def reach(start: Iterable[int], edges: Sequence[Iterable[int]]) -> set[int]:
    """Nodes that are reached from some nodes, themselves included."""
    return walk(start, edges.__getitem__)


def walk(start: Iterable[int], edges: Callable[[int], Iterable[int]]) -> set[int]:
    """Nodes that are reached from some nodes by edges that are asked for."""
    found = set(start)
    waiting = list(found)
    while waiting:
        for i in edges(waiting.pop()):
            if i not in found:
                found.add(i)
                waiting.append(i)
    return found


def inner_nodes(node: ir.Node) -> list[ir.Node]:
    """The nodes of the graphs inside a node, of theirs too."""
    direct = [inner for graph in _graphs(node) for inner in graph]
    return direct + [deep for inner in direct for deep in inner_nodes(inner)]


def captured(node: ir.Node) -> list[ir.Value]:
    """What the graphs inside a node read from around it."""
    found: list[ir.Value] = []
    for graph in _graphs(node):
        own = {*graph.inputs, *graph.initializers.values()}
        for inner in graph:
            own.update(inner.outputs)
        read = [v for inner in graph for v in _read(inner)]
        found += [v for v in [*read, *graph.outputs] if v not in own]
    return found


def _graphs(node: ir.Node) -> list[ir.Graph]:
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            graphs.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs.extend(attribute.as_graphs())
    return graphs


def _read(node: ir.Node) -> list[ir.Value]:
    direct = [v for v in node.inputs if v is not None and present(v)]
    return list(dict.fromkeys([*direct, *captured(node)]))


def _product(node: ir.Node) -> bool:
    """Whether a node or one inside it is a product; a loop may be as much."""
    return (
        node.op_type in _PRODUCTS
        or "Attention" in node.op_type
        or any(_product(inner) for inner in inner_nodes(node))
    )


def repeatable(node: ir.Node) -> bool:
    """Whether a node gives the same numbers each time."""
    return not node.op_type.startswith("Random") and node.op_type not in _DRAWN


def nbytes(values: Iterable[ir.Value]) -> int:
    """Bytes of constants as they are stored."""
    tensors = {id(tensor): tensor for v in values if (tensor := constant(v)) is not None}
    return sum(tensor.nbytes for tensor in tensors.values())
