"""Why a node of a model is where it is: facts, row, evidence, rules, and what a person can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import onnx_ir as ir

from capabilities import Facts, Judgement, Target, Verdict, eps, target
from rewriter.commit import SOURCE
from rewriter.errors import BadInput
from rewriter.explanation import Evidence, evidence_for
from rewriter.facts import facts_of
from rewriter.lowering import lower
from rewriter.nodes import op_of
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.probe import PROBED
from rewriter.record import Report, Tried


class Fate(StrEnum):
    """What becomes of a node."""

    KEPT = "stays as it is"
    LOWERED = "is replaced"
    FUSED = "is fused with others"
    GONE = "is not needed any more"
    """Its value is a constant once dims are fixed, or nothing reads it after other rewrites."""
    STUCK = "stays, and cannot run there"
    OPEN = "stays or goes, which depends on dims that are free"
    UNKNOWN = "stays, and nobody knows whether it runs there"


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Why one node of a model is where it is.

    Attributes:
        node: its name.
        op: ``domain::Type``.
        target: for which it was asked.
        fate: what becomes of it.
        facts: what the table was asked, as words.
        judgement: verdict and row.
        evidence: of the row.
        rules: those that replace it, the first one first; then those that replace what it built.
        tried: rules that were tried before and left it alone, with the reason.
        becomes: how often each op stands for it in the result.
        legal_on: measured versions of the EP that run it as it is.
        advice: what a person can do, as sentences.
    """

    node: str
    op: str
    target: Target
    fate: Fate
    facts: tuple[str, ...]
    judgement: Judgement
    evidence: Evidence | None
    rules: tuple[str, ...]
    tried: tuple[Tried, ...]
    becomes: Mapping[str, int]
    legal_on: tuple[str, ...]
    advice: tuple[str, ...]


def explain_node(
    model: ir.Model, name: str, on: Target, *, disable: Iterable[str] = ()
) -> NodeExplanation:
    """Explain a node of a model whose dims are fixed; the model's shapes are inferred in place.

    Args:
        model: is not rewritten.
        name: of the node, or of a value that it computes.
        on: the target.
        disable: names of rules not to use.

    Raises:
        BadInput: there is no such node, or no such rule.
    """
    node = _node(model, name)
    imports = dict(model.opset_imports)
    facts = facts_of(node, imports, on)
    settle_shapes(model)
    if node.graph is not None:  # else it was a constant
        facts = facts_of(node, imports, on)
    judgement = on.judge(facts)
    after = model.clone()
    report = lower(after, on, disable=disable, allow_stuck=True, keep_sites=False)
    own, originals = node.name or "", {n.name for n in _nodes(model)}
    row = judgement.row
    sites = {own, *(fired.node for fired in report.fired if own in fired.others)}
    built = [n for n in _nodes(after) if n.metadata_props.get(SOURCE) in sites]
    fate = _fate(own, judgement, report, after)
    if fate is Fate.STUCK and _free(facts):
        fate = Fate.OPEN
    versions = tuple(_legal_on(node, imports, on))
    return NodeExplanation(
        own,
        op_of(node),
        on,
        fate,
        tuple(_words(facts)),
        judgement,
        evidence_for(row, on.ep, on.extrapolated_from or on.version) if row else None,
        _rules(own, report, originals),
        _tried(own, report),
        Counter(op_of(n) for n in built),
        versions,
        tuple(_advice(op_of(node), facts, judgement, on, fate, versions)),
    )


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in model.graphs():
        yield from graph


def _node(model: ir.Model, name: str) -> ir.Node:
    named = {node.name or "": node for node in _nodes(model)}
    made = {value.name or "": node for node in _nodes(model) for value in node.outputs}
    found = named.get(name) or made.get(name)
    if found is None or not name:
        near = [n for n in named if n and name.lower() in n.lower()][:5]
        hint = f"; near: {', '.join(near)}" if near else ""
        raise BadInput(f"the model has no node '{name}'{hint}")
    return found


def _words(facts: Facts) -> Iterator[str]:
    """Facts as lines: tensors, attributes, and what is known of the nodes around."""
    for key, tensor in [*facts.inputs.items(), *facts.outputs.items()]:
        shape = "?" if tensor.shape is None else [d if d is not None else "?" for d in tensor.shape]
        shown = str(shape).replace("'", "")
        yield f"{key}: {tensor.dtype or '?'} {shown}" + (" const" if tensor.const else "")
    yield from (f"{k}={v}" for k, v in sorted(facts.attributes.items()) if v is not None)
    yield from sorted(facts.traits)
    if facts.activations:
        yield f"activations {facts.activations}"


def _fate(name: str, judgement: Judgement, report: Report, after: ir.Model) -> Fate:
    if any(fired.node == name and not fired.others for fired in report.fired):
        return Fate.LOWERED
    if any(name == fired.node or name in fired.others for fired in report.fired):
        return Fate.FUSED
    if any(stuck.node == name for stuck in report.stuck):
        return Fate.STUCK
    if all(node.name != name for node in _nodes(after)):
        return Fate.GONE
    return Fate.UNKNOWN if judgement.verdict is Verdict.UNKNOWN else Fate.KEPT


def _rules(name: str, report: Report, originals: Collection[str | None]) -> tuple[str, ...]:
    """Rules of the node, and of what was built for it: a rule names nodes after the one it took."""
    own = [f.rule for f in report.fired if f.node == name or name in f.others]
    new = (f for f in report.fired if f.node.startswith(f"{name}/") and f.node not in originals)
    return tuple(dict.fromkeys([*own, *(f.rule for f in new)]))


def _tried(name: str, report: Report) -> tuple[Tried, ...]:
    found = [tried for stuck in report.stuck if stuck.node == name for tried in stuck.tried]
    found += [tried for fired in report.fired if fired.node == name for tried in fired.tried]
    return tuple(found)


def _free(facts: Facts) -> bool:
    return any(None in (t.shape or ()) for t in (*facts.inputs.values(), *facts.outputs.values()))


def _legal_on(node: ir.Node, imports: Mapping[str, int], on: Target) -> Iterator[str]:
    """Measured versions of the EP whose rows call the node legal."""
    for ep in eps():
        for version in ep.measured if ep.name == on.ep else ():
            other = target(ep.name, version, options=on.options)
            if (
                node.graph is not None
                and other.judge(facts_of(node, imports, other)).verdict is Verdict.LEGAL
            ):
                yield version


def _advice(
    op: str,
    facts: Facts,
    judgement: Judgement,
    on: Target,
    fate: Fate,
    versions: tuple[str, ...],
) -> Iterator[str]:
    unit = op if judgement.form == "any" else f"{op}[{judgement.form}]"
    if _free(facts) and (on.static_only or fate is Fate.OPEN):
        yield "its dims are not all known: fix them with --dim NAME=VALUE and ask again"
    if fate is Fate.OPEN:
        return
    if fate is Fate.KEPT:
        yield f"your {on.ep} does otherwise? --illegal '{unit}' replaces it"
        return
    if judgement.verdict is Verdict.LEGAL:  # it went with what is not, or for the better
        return
    if fate in {Fate.LOWERED, Fate.FUSED}:
        yield f"your {on.ep} runs it as it is? --legal '{unit}' keeps it"
    if fate in {Fate.STUCK, Fate.UNKNOWN}:
        yield f"you know that it runs? --legal '{unit}'"
        if on.ep in PROBED:
            yield f"not sure? rewrite probe --ep {on.ep} --op {op} measures the installed runtime"
    if fate is Fate.STUCK:
        yield "it may run on the CPU? --allow-stuck writes the model with it"
        yield "a rule can replace it: CONTRIBUTING.md says how, also in a package of your own"
    others = [version for version in versions if version != on.version]
    if fate is not Fate.GONE and others:
        yield f"{on.ep} {', '.join(others)} runs it as it is"
