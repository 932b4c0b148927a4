"""A few nodes of a graph as a model of their own: what parity runs, and what a person can run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from rewriter.nodes import constant, present


@dataclass
class _Copy:
    """Copies values and nodes, backwards from what is asked for."""

    boundary: frozenset[ir.Value]
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    inputs: list[ir.Value] = field(default_factory=list)
    initializers: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)

    def value(self, value: ir.Value) -> ir.Value:
        if value in self.values:
            return self.values[value]
        stored = constant(value)
        if stored is not None:
            copy = self.values[value] = _like(value)
            copy.const_value = stored
            copy.shape, copy.type = ir.Shape(stored.shape.numpy()), ir.TensorType(stored.dtype)
            self.initializers.append(copy)
            return copy
        producer = value.producer()
        if producer is None or value in self.boundary:
            copy = self.values[value] = _like(value)
            self.inputs.append(copy)
            return copy
        self.node(producer)
        return self.values[value]

    def node(self, node: ir.Node) -> None:
        inputs = [self.value(v) if v is not None and present(v) else None for v in node.inputs]
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            list(node.attributes.values()),
            num_outputs=len(node.outputs),
            name=node.name,
            overload=node.overload,
        )
        self.nodes.append(copy)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            self.values[old] = new
            new.name, new.type, new.shape = old.name, old.type, old.shape


def from_constants(value: ir.Value) -> bool:
    """Whether a value is computed, and from constants alone."""
    return value.producer() is not None and not leaves([value], ())


def leaves(values: Iterable[ir.Value], boundary: Collection[ir.Value]) -> set[ir.Value]:
    """Where walking up from some values ends: at a boundary, or at an input; never at constants."""
    found: set[ir.Value] = set()
    waiting, seen = list(values), set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen or constant(value) is not None:
            continue
        seen.add(value)
        producer = value.producer()
        if producer is None or value in boundary:
            found.add(value)
        else:
            waiting += [v for v in producer.inputs if v is not None and present(v)]
    return found


def follows(value: ir.Value, others: Collection[ir.Value], steps: int = 3) -> bool:
    """Whether a few nodes compute a value from some others, such as sums over parts of one."""
    waiting, nodes = [value], set[ir.Node]()
    while waiting:
        one = waiting.pop()
        if one in others or constant(one) is not None:
            continue
        producer = one.producer()
        if producer is None or len(nodes | {producer}) > steps:
            return False
        nodes.add(producer)
        waiting += [v for v in producer.inputs if v is not None and present(v)]
    return bool(nodes)


def between(outputs: Iterable[ir.Value], boundary: Collection[ir.Value]) -> set[ir.Node]:
    """Nodes that some outputs depend on, up to a boundary."""
    found: set[ir.Node] = set()
    waiting = list(outputs)
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is None or producer in found or value in boundary:
            continue
        found.add(producer)
        waiting += [v for v in producer.inputs if v is not None and present(v)]
    return found


def induced(
    model: ir.Model,
    nodes: Iterable[ir.Node],
    boundary: Iterable[ir.Value],
    outputs: Iterable[ir.Value],
) -> ir.Model:
    """Some nodes of a graph as a model, whatever their number: nothing here recurses.

    Args:
        model: the model they live in.
        nodes: producers first.
        boundary: what they read and do not compute.
        outputs: some of what they compute.
    """
    copy = _Copy(frozenset(boundary))
    for node in nodes:
        copy.node(node)
    return _model(model, copy, [copy.value(value) for value in outputs])


def _like(value: ir.Value) -> ir.Value:
    return ir.Value(name=value.name, type=value.type, shape=value.shape)


def extract(
    model: ir.Model,
    outputs: Sequence[ir.Value],
    names: Sequence[str],
    boundary: Iterable[ir.Value],
) -> ir.Model:
    """The nodes between some values and some outputs, as a model.

    Args:
        model: the model they live in (for opsets and functions).
        outputs: values to compute.
        names: what the outputs are called in the new model.
        boundary: values that become inputs, unless they are constants; whatever else the outputs
            depend on is copied, up to the inputs of the graph.
    """
    copy = _Copy(frozenset(boundary))
    found = [copy.value(value) for value in outputs]
    produced: list[ir.Value] = []
    for name, value in zip(names, found, strict=True):
        if value.producer() is None or value in produced:
            identity = ir.Node("", "Identity", [value], num_outputs=1)
            copy.nodes.append(identity)
            identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
            value = identity.outputs[0]
        value.name = name
        produced.append(value)
    return _model(model, copy, produced)


def _model(model: ir.Model, copy: _Copy, outputs: Sequence[ir.Value]) -> ir.Model:
    graph = ir.Graph(
        copy.inputs,
        outputs,
        nodes=copy.nodes,
        initializers=copy.initializers,
        opset_imports=dict(model.opset_imports) | {"com.microsoft": 1},
        name="site",
    )
    return ir.Model(graph, ir_version=model.ir_version, functions=list(model.functions.values()))
