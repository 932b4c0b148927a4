"""Finding a fusion's pattern, which is written in onnxscript's notation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import Rule
from rewriter.site import Site


@dataclass(frozen=True, slots=True)
class Match:
    """Nodes of the graph that a pattern found; the last one is the pattern's root.

    Attributes:
        nodes: the matched nodes, producers first.
        bound: value by the name that the pattern gives it.
    """

    nodes: tuple[ir.Node, ...]
    bound: Mapping[str, ir.Value]

    def site(self, imports: Mapping[str, int]) -> Site:
        """The root as a site, with the other nodes beside it.

        What the pattern itself names or joins counts as read; everything else that a node has
        (an optional input, an attribute) the rule has to look at.
        """
        names = {value.producer(): name for name, value in self.bound.items()}
        seen = {*self.bound.values(), *(v for node in self.nodes for v in node.outputs)}
        sites = {
            names.get(node, f"{node.op_type}_{i}"): Site(node, imports, matched=seen)
            for i, node in enumerate(self.nodes[:-1])
        }
        return Site(self.nodes[-1], imports, matched=seen, others=sites, bound=self.bound)


def find(rule: Rule, model: ir.Model, graph: ir.Graph | ir.Function, root: ir.Node) -> Match | None:
    """Match a fusion's pattern at the node it ends in."""
    found = _compiled(rule).match(model, graph, root, check_nodes_are_removable=False)
    if not found:
        return None
    bound = {name: v for name, v in found.bindings.items() if isinstance(v, ir.Value)}
    return Match(tuple(_in_order(root, set(found.nodes))), bound)


def _in_order(root: ir.Node, matched: set[ir.Node]) -> list[ir.Node]:
    """The matched nodes, producers first; the root comes last."""
    order: dict[ir.Node, None] = {}

    def visit(node: ir.Node) -> None:
        for producer in node.predecessors():
            if producer in matched and producer not in order:
                visit(producer)
        order[node] = None

    visit(root)
    return list(order)


@cache
def _compiled(rule: Rule) -> Any:
    from onnxscript.rewriter import pattern

    assert rule.pattern is not None

    class Matcher(pattern.SimplePatternMatcher):
        """Sees Constant nodes, and asks the check of a variable while matching.

        So the check decides between alternatives; onnxscript asks it of the whole match, when they
        are chosen, and only of variables without a name.
        """

        def _match_constant(self, pattern_constant: Any, value: ir.Value) -> bool:
            like = ir.Value(name=value.name, const_value=constant(value))
            return bool(super()._match_constant(pattern_constant, like))

        def _match_value(self, pattern_value: Any, value: ir.Value | None) -> bool:
            check = pattern_value.check_method
            if check is not None and (value is None or not check(None, value)):
                return bool(self.fail(f"the check of {pattern_value} says no"))
            return bool(super()._match_value(pattern_value, value))

    def never(op: Any, **_bindings: Any) -> Any:
        raise AssertionError("the pattern is only matched; the engine builds")

    return pattern.RewriteRule(
        rule.pattern,
        never,
        matcher=Matcher,
        name=rule.name,
    )
