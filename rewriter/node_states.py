"""Where each node of a written graph runs, and why: what a picture of the graph is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import onnx_ir as ir

from capabilities import Target, Verdict
from rewriter.commit import RULE, SOURCE
from rewriter.facts import facts_of
from rewriter.nodes import op_of
from rewriter.placement import Placement
from rewriter.runtime.log import label
from rewriter.slices import Slice


class Place(StrEnum):
    """Where a node runs, and how that is known."""

    EP = "on the EP"
    """Seen on the runtime."""
    LEGAL = "legal by the table"
    """Not placed in this run."""
    UNKNOWN = "unknown to the table"
    CPU = "on the CPU"
    """Seen on the runtime, or stuck: the table says that the EP does not run it."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of the graph that was written.

    Attributes:
        name: its name.
        op: ``domain::Type``.
        place: where it runs.
        form: the form of the row that decided.
        why: the row's reason, or the runtime's.
        rule: the rule that built it; empty for a node of the original.
        source: name of the node it was built for.
        feeds_on: positions, in the same list, of the nodes whose outputs it reads.
    """

    name: str
    op: str
    place: Place
    form: str
    why: str
    rule: str
    source: str
    feeds_on: tuple[int, ...]


def node_states(
    model: ir.Model, target: Target, placement: Placement | None, part: Slice | None
) -> list[NodeState]:
    """The nodes of a graph after it was lowered, in the order in which they run.

    Args:
        model: as it was written, with its shapes; nodes within subgraphs are left out.
        target: whose table is asked.
        placement: what its runtime did with it, if that was asked.
        part: the slice that was placed, where the whole was not.
    """
    imports = dict(model.opset_imports)
    places: dict[ir.Node, int] = {}
    found = []
    for position, node in enumerate(model.graph):
        judged = target.judge(facts_of(node, imports, target))
        op = op_of(node)
        place, why = _seen(node.name or "", op, placement, part)
        if place is None:
            place = _by_table(judged.verdict)
        sources = (value.producer() for value in node.inputs if value is not None)
        found.append(
            NodeState(
                node.name or "",
                op,
                place,
                judged.form,
                why or judged.why if place is not Place.EP else "",
                node.metadata_props.get(RULE, ""),
                node.metadata_props.get(SOURCE, ""),
                tuple(sorted({places[one] for one in sources if one in places})),
            )
        )
        places[node] = position
    return found


def _by_table(verdict: Verdict) -> Place:
    known = {Verdict.LEGAL: Place.LEGAL, Verdict.UNKNOWN: Place.UNKNOWN}
    return known.get(verdict, Place.CPU)


def _seen(
    name: str, op: str, placement: Placement | None, part: Slice | None
) -> tuple[Place | None, str]:
    """Where the runtime put a node, with its reason; nothing for one that it was not shown."""
    if placement is None or (part is not None and name not in part.names):
        return None, ""
    known = label(name, op)
    if any(left == known for left, _ in placement.cpu_nodes):
        return Place.CPU, placement.reasons.get(known, "the runtime gives no reason")
    return Place.EP, ""
