"""A slice of a model: the fewest nodes that hold every distinct form, as a model of their own.

What repeats is what layers are made of, so a slice is about one layer of each kind with the
embedding and the head. It stands in where the whole is too much for a runtime on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import onnx_ir as ir

from rewriter.extract import between, induced, leaves
from rewriter.nodes import constant, dims_of, op_of, present
from rewriter.output import disk


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a model.

    Attributes:
        model: the nodes as a model; what they read of other nodes are inputs of it.
        names: names of the nodes.
        inner: names of the outputs that are none of the whole.
        nodes: how many there are.
        of: how many the whole has.
    """

    model: ir.Model
    names: frozenset[str]
    inner: frozenset[str]
    nodes: int
    of: int

    def __str__(self) -> str:
        return f"a slice of {self.nodes} of {self.of} nodes that holds every distinct form"

    def save(self, path: Path) -> Path:
        """Write it with its own copy of the weights it has.

        Raises:
            OutOfResources: the disk is full.
        """
        with disk(path.parent):
            ir.save(self.model, path, external_data=f"{path.name}.data")
        return path


def distinct(model: ir.Model) -> Slice | None:
    """A slice with every distinct form of a model; nothing if that is all of it."""
    kept = _kept(model)
    return None if kept is None else _slice(model, kept, _ends(kept))


def alike(original: ir.Model, result: ir.Model) -> tuple[Slice, Slice] | None:
    """A slice of a model and the same part of what became of it.

    They have the same outputs, and inputs that agree, by their names. Nothing, if that is all of
    the model, or if a rule has reached across where it is cut.
    """
    kept = _kept(original)
    if kept is None:
        return None
    known = {v.name: v for v in result.graph.inputs}
    known |= {v.name: v for node in result.graph for v in node.outputs}
    given = _read_from_others(kept)
    boundary = {known[value.name] for value in given if value.name in known}
    asked = [value for value in _ends(kept) if value.name in known]
    ends = [known[value.name] for value in asked]
    if not between(asked, given) >= set(kept):
        return None
    for value, end in zip(asked, ends, strict=True):
        if not _names(leaves([end], boundary)) <= _names(leaves([value], given)):
            return None
    found = between(ends, boundary)
    replaced = [node for node in result.graph if node in found]
    return _slice(original, kept, asked), _slice(result, replaced, ends)


def _slice(model: ir.Model, nodes: Sequence[ir.Node], asked: Sequence[ir.Value]) -> Slice:
    names = frozenset(node.name or "" for node in nodes)
    inner = frozenset(value.name or "" for value in asked if not value.is_graph_output())
    part = induced(model, nodes, _read_from_others(nodes), asked)
    return Slice(part, names, inner, len(nodes), sum(1 for _ in model.graph))


def _names(values: Iterable[ir.Value]) -> set[str | None]:
    return {value.name for value in values}


def _read_from_others(nodes: Sequence[ir.Node]) -> set[ir.Value]:
    inside = set(nodes)
    return {v for n in nodes for v in n.inputs if v is not None and v.producer() not in inside}


def _ends(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """What a slice computes: outputs of the graph, and values that only other nodes read.

    What its own nodes read as well shows in theirs, and may be of a type that a runtime does not
    hand out, as a mask of bools is on some.
    """
    inside = set(nodes)
    return [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output()
        or (value.uses() and not any(user in inside for user, _ in value.uses()))
    ]


def _kept(model: ir.Model) -> list[ir.Node] | None:
    """The first node of each form, and what lies between them unless that is long.

    A gap as long as what is kept is a repetition of it; a shorter one lies within a layer, which
    is cut in fewer places when it stays whole.
    """
    nodes = [node for node in model.graph if node.op_type != "Constant"]
    if any(_has_graph(node) for node in nodes):
        return None  # a graph inside may read any value of this one
    seen: set[str] = set()
    first = []
    for i, node in enumerate(nodes):
        if (form := _form(node)) not in seen:
            seen.add(form)
            first.append(i)
    kept = {*first}
    for one, other in pairwise(first):
        if other - one <= len(first):
            kept.update(range(one, other))
    return [nodes[i] for i in sorted(kept)] if len(kept) < len(nodes) else None


def _has_graph(node: ir.Node) -> bool:
    graphs = {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}
    return any(attribute.type in graphs for attribute in node.attributes.values())


def _form(node: ir.Node) -> str:
    """All that decides how a runtime takes a node: not its numbers, but their type and shape."""
    attributes = sorted(f"{name}={_printed(a)}" for name, a in node.attributes.items())
    parts = [op_of(node), *attributes, *_described(node.inputs), "->", *_described(node.outputs)]
    return " ".join(parts)


def _printed(attribute: ir.Attr) -> str:
    if attribute.type != ir.AttributeType.TENSOR or attribute.is_ref():
        return str(attribute.value)
    tensor = attribute.as_tensor()
    return f"{tensor.dtype}{tensor.shape}"


def _described(values: Iterable[ir.Value | None]) -> Sequence[str]:
    return [
        "-"
        if value is None or not present(value)
        else f"{value.dtype}{dims_of(value)}{'const' if constant(value) is not None else ''}"
        for value in values
    ]
