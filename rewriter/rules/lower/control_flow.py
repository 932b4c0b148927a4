"""Loop, Scan and If stay what they are: what a person can do about one is the reason given.

No target that refuses control flow has another op for it. An If of a constant condition is taken
before any rule is asked (:mod:`rewriter.passes.take_branches`). What a body holds is lowered like
everything else.
"""

from __future__ import annotations

from typing import NoReturn

import onnx_ir as ir

from rewriter.nodes import constant, op_of
from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape

_DECODES = frozenset({
    "Attention", "com.microsoft::Attention", "com.microsoft::DecoderMaskedMultiHeadAttention",
    "com.microsoft::GroupQueryAttention", "com.microsoft::MultiHeadAttention", "Softmax",
})  # fmt: skip


@lowers("Loop", emits=())
def loop_stays(op: Tape, site: Site) -> NoReturn:
    """Nothing: says what the loop is, and what to do."""
    del op
    body = _body(site, "body")
    trips = constant(site.optional("M"))
    turns = "a number of turns that is known at run time alone"
    if trips is not None and trips.size == 1:
        turns = f"up to {int(trips.numpy().item()):,} turns"
    carried = len(body.inputs) - 2
    advice = "unroll it, or compute it outside of the model"
    if _decodes(body):
        advice = (
            "it looks like a decoder that generates in the graph: export the step inside as a "
            "model of its own, with its state as inputs and outputs, and call that in a loop"
        )
    elif trips is not None:
        advice = "the number of turns is fixed: export the model with the loop unrolled"
    site.refuse(f"a Loop of {turns} over {_size(body)} and {carried} carried value(s): {advice}")


@lowers("Scan", emits=())
def scan_stays(op: Tape, site: Site) -> NoReturn:
    """Nothing: says what the scan is, and what to do."""
    del op
    body = _body(site, "body")
    count = site.integer("num_scan_inputs")
    scanned = site.node.inputs[-count] if 0 < count <= len(site.node.inputs) else None
    steps = None if scanned is None or not scanned.shape else scanned.shape[0]
    fixed = isinstance(steps, int)
    turns = f"{steps:,} steps" if fixed else "as many steps as its inputs are long"
    advice = "export the model with it unrolled" if fixed else "fix that length, and unroll it"
    site.refuse(
        f"a Scan of {turns} over {_size(body)}: {advice}, or export the operation without a "
        "recurrence (recurrent layers have a parallel form in most exporters)"
    )


@lowers("If", emits=())
def if_stays(op: Tape, site: Site) -> NoReturn:
    """Nothing: says what the choice hangs on, and what to do."""
    del op
    branches = [_body(site, name) for name in ("then_branch", "else_branch")]
    condition = site.node.inputs[0]
    cause = "its condition" if condition is None else f"its condition '{condition.name}'"
    depends = _inputs_above(condition)
    named = f" depends on the input(s) {', '.join(depends)}" if depends else " is run-time data"
    site.refuse(
        f"an If between {_size(branches[0])} and {_size(branches[1])}, where {cause}{named}: fix "
        "what it depends on with --dim, or export one model for each branch"
    )


def _body(site: Site, name: str) -> ir.Graph:
    """A graph attribute; it counts as read."""
    site.ignore(name)
    return site.node.attributes[name].as_graph()


def _size(body: ir.Graph) -> str:
    count = sum(1 for _ in body)
    return f"{count} node" + "s" * (count != 1)


def _decodes(body: ir.Graph) -> bool:
    return any(op_of(node) in _DECODES for node in ir.traversal.RecursiveGraphIterator(body))


def _inputs_above(value: ir.Value | None) -> list[str]:
    """Names of the graph inputs that a value is computed from, three at most."""
    waiting, seen = [value], set[ir.Value]()
    found: set[str] = set()
    while waiting:
        at = waiting.pop()
        if at is None or at in seen:
            continue
        seen.add(at)
        producer = at.producer()
        if producer is not None:
            waiting += producer.inputs
        elif at.is_graph_input() and not at.is_initializer():
            found.add(str(at.name))
    return sorted(found)[:3]
