"""Pieces of patterns that fusions share, in onnxscript's notation.

A variable with a check decides between alternatives while the pattern is matched
(:mod:`rewriter.matching`): :func:`number` is taken for a constant of one element only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.site import Site

_RULE = "rewriter.rule"
"""Key of a node's metadata, by which the engine names the rule that made it."""


def number(name: str) -> Any:
    """A constant of one element."""
    from onnxscript.rewriter.pattern import Var

    return Var(name, check=_is_number)


def _is_number(_context: Any, value: ir.Value) -> bool:
    stored = constant(value)
    return stored is not None and stored.size == 1 and stored.dtype.is_floating_point()


def any_of(*alternatives: Any, name: str | None = None) -> Any:
    """The first alternative that matches."""
    from onnxscript.rewriter.pattern import OrValue

    return OrValue(alternatives, name)


def either(kind: Any, a: Any, b: Any) -> Any:
    """A node of two operands, in any order."""
    return any_of(kind(a, b), kind(b, a))


def scaled(op: Any, x: Any, name: str) -> Any:
    """x·c, c·x or x/c for a number c, or x alone; :func:`factor` reads which."""
    c = number(name)
    return any_of(op.Mul(x, c), op.Mul(c, x), op.Div(x, number(f"{name} divisor")), x)


def factor(site: Site, name: str) -> float:
    """What a piece made by :func:`scaled` multiplies with."""
    if f"{name} divisor" in site.bound:
        divisor = value_of(site, f"{name} divisor")
        site.require(divisor not in {0.0}, "a division by 0")
        return 1 / divisor
    return value_of(site, name) if name in site.bound else 1.0


def value_of(site: Site, name: str) -> float:
    """A number of the pattern."""
    return float(site.constant(site.bound[name], name).reshape(-1)[0])


def integers(site: Site, name: str) -> list[int]:
    """A constant list of integers of the pattern, such as axes."""
    found: list[int] = site.constant(site.bound[name], name).reshape(-1).tolist()
    return found


def site_of(site: Site, value: ir.Value) -> Site:
    """The matched node that makes a value; several parts of a pattern may share it."""
    return next(s for s in site.others.values() if s.node is value.producer())


def require_private(site: Site, values: Collection[ir.Value]) -> None:
    """Refuse if a value inside the pattern is used outside of it: it would be computed twice."""
    inside = {site.node, *(other.node for other in site.others.values())}
    for value in values:
        alone = not value.is_graph_output() and all(c in inside for c in value.consumers())
        site.require(alone, f"'{value.name}' is used elsewhere, too")


def require_foreign(site: Site) -> None:
    """Refuse what rules of ours have written out: a second run would undo the first (law 13)."""
    for node in (site.node, *(other.node for other in site.others.values())):
        rule = node.metadata_props.get(_RULE)
        site.require(rule is None, f"the rule {rule} has written it out")
