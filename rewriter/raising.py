"""Whether the nodes of a graph let its opset be raised; each is looked at once for a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx_ir as ir

from capabilities import Facts
from rewriter.facts import facts_of
from rewriter.nodes import op_of
from rewriter.opsets import moves, raised


class Raising:
    """What was found about raising the opset of one scope: a model, or a function.

    Without this every site whose rule needs a newer op would look at every node again.

    Args:
        nodes: gives all nodes of the scope, as they are when the question first comes up.
    """

    def __init__(self, nodes: Callable[[], Iterable[ir.Node]]) -> None:
        self._nodes = nodes
        self._new: list[ir.Node] = []
        self._seen: dict[tuple[int, int], int] = {}
        self._last: dict[tuple[int, int], ir.Node] = {}

    def add(self, nodes: Iterable[ir.Node]) -> None:
        """Nodes that came since."""
        self._new += nodes

    def opset(self, imports: Mapping[str, int], wanted: int) -> int:
        """The opset to use where something needs ``wanted``.

        Raises:
            NotRaisable: a node means something else there, as :func:`raised` says.
        """
        own = imports.get("", 1)
        if own >= wanted:
            return own
        key = own, wanted
        found = raised(self._units(key, imports), own, wanted)
        self._seen[key] = len(self._new)
        return found

    def _units(
        self, key: tuple[int, int], imports: Mapping[str, int]
    ) -> Iterator[tuple[str, Facts]]:
        """Nodes not yet looked at that have another version there; first the one that said no."""
        last = self._last.get(key)
        if last is not None:
            yield from self._unit(last, key, imports)
        fresh = self._new[self._seen[key] :] if key in self._seen else self._nodes()
        for node in fresh:
            self._last[key] = node
            yield from self._unit(node, key, imports)
        self._last.pop(key, None)

    @staticmethod
    def _unit(
        node: ir.Node, key: tuple[int, int], imports: Mapping[str, int]
    ) -> Iterator[tuple[str, Facts]]:
        if node.graph is not None and moves(op_of(node), *key):
            yield node.name or "", facts_of(node, imports)
