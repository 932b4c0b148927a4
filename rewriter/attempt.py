"""One rule on one site: build on a tape, check what was built, or undo it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from capabilities import Facts
from rewriter.commit import Commit, check_emitted
from rewriter.errors import RewriteError
from rewriter.matching import Match
from rewriter.nodes import NotStatic, op_of
from rewriter.rule import Rule
from rewriter.site import Refusal, Site
from rewriter.tape import Tape, Workspace


class RuleError(RewriteError):
    """A rule raised an exception, or built what it may not; a fault of the rule."""


def attempt(
    rule: Rule,
    node: ir.Node,
    form: str,
    space: Workspace,
    imports: Mapping[str, int],
    match: Match | None = None,
    facts: Facts | None = None,
) -> Commit:
    """A replacement for a node (or a fusion's match), ready to be applied.

    Args:
        rule: what to try.
        node: the node, or the root of the match.
        form: what made it illegal, for messages.
        space: of the graph the node is in.
        imports: opsets to build at.
        match: of a fusion.
        facts: of the node at these imports, where they are known.

    Raises:
        Refusal: the rule does not take the site; no trace is left.
        RuleError: the rule is at fault; no trace is left.
    """
    tape = Tape(space, node.name or op_of(node), imports)
    site = match.site(imports) if match else Site(node, imports, facts=facts)
    try:
        outputs = _build(rule, tape, site)
        commit = Commit(rule, site, tape, outputs, match.nodes if match else (node,))
        check_emitted(rule, tape, imports)
    except (Refusal, MemoryError):  # neither is a fault of the rule
        tape.discard()
        raise
    except NotStatic as reason:
        tape.discard()
        raise Refusal(str(reason)) from None
    except Exception as error:
        tape.discard()
        raise RuleError(
            f"rule {rule.name} ({rule.source}) failed on {op_of(node)} '{node.name}' "
            f"[{form}] with attributes {_attributes(node)}: {type(error).__name__}: {error}"
        ) from error
    return commit


def _build(rule: Rule, tape: Tape, site: Site) -> Sequence[ir.Value | None]:
    outputs = rule.build(tape, site)
    ignored = [name for s in (site, *site.others.values()) for name in s.unread()]
    if ignored:
        raise Refusal(f"{', '.join(ignored)} is not handled")
    return (outputs,) if isinstance(outputs, ir.Value) else tuple(outputs)


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {
        name: "..." if attribute.type == ir.AttributeType.TENSOR else attribute.value
        for name, attribute in node.attributes.items()
    }
