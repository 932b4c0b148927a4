"""Which inputs of a graph a value follows from: by their numbers, or by their shapes as well."""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import op_of, present

SHAPES = frozenset({"Shape", "Size"})
"""Ops that read no numbers."""


class Origins:
    """What values follow from; remembered, as those of a mask are asked for in every layer."""

    def __init__(self) -> None:
        self._numbers: dict[ir.Value, frozenset[str]] = {}

    def numbers(self, value: ir.Value) -> frozenset[str]:
        """Names of the inputs whose numbers, and not only their shape, a value follows from."""
        if value not in self._numbers:
            self._numbers[value] = _inputs(value, shapes=False)
        return self._numbers[value]

    def lengths(self, value: ir.Value) -> frozenset[str]:
        """Names of the inputs whose numbers or shape a value follows from."""
        return _inputs(value, shapes=True)

    def above(self, value: ir.Value | None) -> set[ir.Node]:
        """Nodes that the numbers of a value follow from."""
        found, waiting = set[ir.Node](), [value]
        while waiting:
            one = waiting.pop()
            node = None if one is None else one.producer()
            if node is not None and node not in found and op_of(node) not in SHAPES:
                found.add(node)
                waiting += node.inputs
        return found


def _inputs(value: ir.Value, *, shapes: bool) -> frozenset[str]:
    names, waiting, seen = set[str](), [value], set[ir.Value]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        node = one.producer()
        if node is None and one.is_graph_input() and not one.is_initializer():
            names.add(one.name or "")
        elif node is not None and (shapes or op_of(node) not in SHAPES):
            waiting += [v for v in node.inputs if v is not None and present(v)]
    return frozenset(names)
