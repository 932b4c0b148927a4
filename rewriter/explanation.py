"""Why an op is where it is on a target: rows, evidence, rules, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx

from capabilities import (
    EP,
    Facts,
    Record,
    Row,
    Target,
    Verdict,
    eps,
    evidence_of,
    target,
)
from rewriter.errors import BadInput
from rewriter.refusals import refusals_of
from rewriter.rule import Registry, Rule, registry
from rewriter.schemas import schema_of


@dataclass(frozen=True, slots=True)
class Span:
    """Versions of an EP in a row that say the same of an op in a form."""

    verdict: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a row rests on: the record that says most, how many more, and other sources."""

    best: Record | None
    others: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """A rule that lowers the op: what it builds, with the verdict on it, and what it refuses."""

    rule: Rule
    emits: tuple[tuple[str, str], ...]
    refuses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one op on one target.

    Attributes:
        op: the op.
        target: the target.
        rows: rows with what they rest on, worst first; reports last.
        ways: rules that lower it, in the order they are tried.
        history: per form, the spans of versions that say the same, where they differ.
    """

    op: str
    target: Target
    rows: tuple[tuple[Row, Evidence], ...]
    ways: tuple[Way, ...]
    history: dict[str, tuple[Span, ...]] = field(default_factory=dict)


_WEIGHTED = frozenset({"MatMul", "Gemm", "Conv"})
"""Ops whose quantized weights are judged with the weight's DequantizeLinear."""

_WORST_FIRST = {Verdict.WRONG: 0, Verdict.ILLEGAL: 1, Verdict.LEGAL: 2}


def explain(op: str, on: Target, *, rules: Registry | None = None) -> list[Explanation]:
    """Explain an op; a type without a domain means every op of that type.

    Raises:
        BadInput: neither table nor rules know the op; near names are given.
    """
    known = rules if rules is not None else registry()
    ops = _meant(op, on, known)
    if set(ops) & _WEIGHTED:
        ops.append("DequantizeLinear")
    return [_explained(name, on, known) for name in ops]


def _meant(op: str, on: Target, rules: Registry) -> list[str]:
    everything = {row.op for ep in eps() for row in ep.rows()} | {rule.op for rule in rules}
    everything = {name for name in everything if "*" not in name}
    bare = op.removeprefix("ai.onnx::")
    found = sorted(n for n in everything if n == bare or n.rpartition("::")[2] == bare)
    if found:
        return found
    near = sorted(n for n in everything if n.rpartition("::")[2].lower() == bare.lower())
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise BadInput(f"{op}: no row and no rule speaks of this op on {on}{hint}")


def _explained(op: str, on: Target, rules: Registry) -> Explanation:
    version = on.extrapolated_from or on.version
    rows = sorted(
        (row for row in on.rows_of(op) if row.op == op),
        key=lambda row: (row.kind == "reported", _WORST_FIRST[row.verdict]),
    )
    rows += [row for row in on.rows_of(op) if row.op != op]
    ways = tuple(_way(rule, on) for rule in [*rules.raising(op), *rules.lowering(op)])
    shown = tuple((row, evidence_for(row, on.ep, version)) for row in rows)
    return Explanation(op, on, shown, ways, _history(op, on))


def evidence_for(row: Row, ep: str, version: str) -> Evidence:
    """What a row rests on at a version of an EP."""
    found = evidence_of(row, ep, version)
    sources = tuple(s for s in row.evidence if not s.startswith("measured:"))
    return Evidence(found[0] if found else None, max(len(found) - 1, 0), sources)


def _way(rule: Rule, on: Target) -> Way:
    emits = tuple((str(emit), _verdict_of(emit.op, on)) for emit in rule.emits)
    return Way(rule, emits, tuple(refusals_of(rule)))


def _verdict_of(op: str, on: Target) -> str:
    """What the target says of an op: legal (in some form at least), illegal or unknown."""
    if any(row.op == op and row.verdict is Verdict.LEGAL for row in on.rows):
        return "legal"
    newest = on.opset or onnx.defs.onnx_opset_version()
    return str(on.judge(Facts(op, newest, standard=schema_of(op, newest).standard)).verdict)


def _history(op: str, on: Target) -> dict[str, tuple[Span, ...]]:
    """Where the measured versions differ on a form."""
    ep = next((ep for ep in eps() if ep.name == on.ep), None)
    if ep is None or len(ep.measured) < 2:
        return {}
    forms = dict.fromkeys(str(r.form) for r in ep.rows() if r.op == op and r.kind != "reported")
    spans = {form: tuple(_spans(ep, op, form)) for form in forms}
    return {
        form: found
        for form, found in spans.items()
        if len({span.verdict for span in found} - {"-"}) > 1 or (form == "any" and len(found) > 1)
    }


def _spans(ep: EP, op: str, form: str) -> Iterator[Span]:
    verdict, versions = "", list[str]()
    for version in ep.measured:
        rows = target(ep.name, version).rows_of(op)
        said = next((str(r.verdict) for r in rows if r.op == op and str(r.form) == form), "-")
        if said != verdict and versions:
            yield Span(verdict, tuple(versions))
            versions = []
        verdict = said
        versions.append(version)
    yield Span(verdict, tuple(versions))
