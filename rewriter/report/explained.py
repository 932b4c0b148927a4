"""Explanations and matrices on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from capabilities import Row, Target
from rewriter.explanation import Evidence, Explanation
from rewriter.matrix import VERDICTS, Matrix
from rewriter.node_explanation import NodeExplanation
from rewriter.report.data import target_data

_STYLE = {"legal": "green", "illegal": "red", "wrong": "bold red", "unknown": "yellow"}


def title(on: Target) -> str:
    """A target, and that its rows were measured on another version, if so."""
    if on.extrapolated_from:
        return f"{on} (not measured: extrapolated from {on.extrapolated_from})"
    return str(on)


def show_explanation(found: Explanation, console: Console) -> None:
    """Print what is known of an op on a target."""
    console.print(Text(f"{found.op} on {title(found.target)}", style="bold"))
    if not found.rows:
        console.print(Text("  unknown: no row of the table speaks of it", style="yellow"))
    for row, evidence in (pair for pair in found.rows if pair[0].op == found.op):
        kind = "reported " if row.kind == "reported" else ""
        style = "yellow" if kind else _STYLE[row.verdict]
        line = f"  {kind}{row.verdict:8} [{row.form}]"
        console.print(Text(line + (f": {row.why}" if row.why else ""), style=style))
        console.print(Text(f"           {evidence_words(evidence)}", style="dim"))
    for row, _ in (pair for pair in found.rows if pair[0].op != found.op):
        line = f"  any op   {row.verdict} [{row.form}]: {row.why}"
        console.print(Text(line, style="dim"))
    for form, spans in found.history.items():
        said = ", ".join(
            f"{span.verdict} {versions_words(span.versions)}"
            for span in spans
            if span.verdict != "-"
        )
        console.print(f"  over versions [{form}]: {said}", markup=False)
    if not found.ways:
        console.print("  rules: none takes it")
    for way in found.ways:
        takes = "" if str(way.rule.form) == "any" else f" (takes [{way.rule.form}])"
        kind = "fusion" if way.rule.pattern else "rule"
        console.print(Text(f"  {kind} {way.rule.name}{takes}: {way.rule.about}"))
        bad = [f"{emit} ({verdict})" for emit, verdict in way.emits if verdict != "legal"]
        good = [emit for emit, verdict in way.emits if verdict == "legal"]
        console.print(Text(f"           builds {', '.join([*good, *bad]) or 'nothing new'}"))
        console.print(Text(f"           defined in {way.rule.source}", style="dim"))
        for reason in way.refuses:
            console.print(Text(f"           refuses: {reason}", style="dim"))


def show_node(found: NodeExplanation, console: Console) -> None:
    """Print why a node is where it is."""
    judgement = found.judgement
    console.print(Text(f"{found.op} '{found.node}' on {title(found.target)}", style="bold"))
    for fact in found.facts:
        console.print(Text(f"  {fact}", style="dim"))
    line = f"  {judgement.verdict} [{judgement.form}]: {judgement.why or 'measured right'}"
    console.print(Text(line, style=_STYLE[judgement.verdict]))
    if found.evidence is not None:
        console.print(Text(f"           {evidence_words(found.evidence)}", style="dim"))
    for doubt in judgement.doubts:
        text = f"  doubt [{doubt.form}]: {doubt.why} ({', '.join(doubt.evidence)})"
        console.print(Text(text, style="yellow"))
    for tried in found.tried:
        console.print(Text(f"  rule {tried.rule} refused: {tried.reason}", style="red"))
    for rule in found.rules:
        console.print(Text(f"  rule {rule} replaces it", style="green"))
    if not (found.rules or found.tried) and judgement.verdict != "legal":
        console.print("  rules: none takes it")
    made = ", ".join(f"{op} x {count}" for op, count in sorted(found.becomes.items()))
    console.print(Text(f"  it {found.fate}" + (f": {made}" if made else ""), style="bold"))
    for sentence in found.advice:
        console.print(Text(f"  {sentence}"))


def show_matrix(found: Matrix, console: Console) -> None:
    """Print one EP's matrix."""
    console.print(Text(f"{found.ep}: {found.about}", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for column in ("op", "form", *(v or "all" for v in found.versions), "rules"):
        table.add_column(column)
    for line in found.lines:
        cells = [Text(v, style=_STYLE[v]) for v in line.verdicts]
        rules = ", ".join(line.rules) or ("none" if line.dead else "")
        table.add_row(line.op, line.form, *cells, rules)
    console.print(table)
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in VERDICTS)
    console.print(f"{len(found.lines)} forms; cells: {counts}")


def matrix_data(found: Sequence[Matrix]) -> list[dict[str, Any]]:
    """Matrices for JSON."""
    return [
        {
            "ep": one.ep,
            "about": one.about,
            "versions": list(one.versions),
            "cells": {verdict: one.count(verdict) for verdict in VERDICTS},
            "forms": [
                {
                    "op": line.op,
                    "form": line.form,
                    "verdicts": dict(zip(one.versions, line.verdicts, strict=True)),
                    "why": line.why,
                    "rules": list(line.rules),
                    "dead_end": line.dead or None,
                }
                for line in one.lines
            ],
        }
        for one in found
    ]


def explanation_data(found: Explanation) -> dict[str, Any]:
    """An op for JSON."""
    return {
        "op": found.op,
        "target": target_data(found.target),
        "rows": [
            row_data(row) | {"kind": row.kind, "record": _record(evidence)}
            for row, evidence in found.rows
        ],
        "history": {
            form: [{"verdict": span.verdict, "versions": list(span.versions)} for span in spans]
            for form, spans in found.history.items()
        },
        "rules": [
            {
                "rule": way.rule.name,
                "fusion": way.rule.pattern is not None,
                "takes": str(way.rule.form),
                "about": way.rule.about,
                "source": way.rule.source,
                "builds": dict(way.emits),
                "refuses": list(way.refuses),
            }
            for way in found.ways
        ],
    }


def node_data(found: NodeExplanation) -> dict[str, Any]:
    """A node for JSON."""
    judgement = found.judgement
    return {
        "node": found.node,
        "op": found.op,
        "target": target_data(found.target),
        "fate": found.fate.name.lower(),
        "facts": list(found.facts),
        "verdict": str(judgement.verdict),
        "form": judgement.form,
        "why": judgement.why,
        "row": judgement.row and row_data(judgement.row),
        "record": _record(found.evidence),
        "doubts": [row_data(doubt) for doubt in judgement.doubts],
        "rules": list(found.rules),
        "tried": [{"rule": tried.rule, "refused": tried.reason} for tried in found.tried],
        "becomes": dict(found.becomes),
        "legal_on": list(found.legal_on),
        "advice": list(found.advice),
    }


def row_data(row: Row) -> dict[str, Any]:
    """A row of the table for JSON."""
    return {
        "op": row.op,
        "form": str(row.form),
        "verdict": str(row.verdict),
        "versions": row.versions.text,
        "why": row.why,
        "evidence": list(row.evidence),
    }


def _record(evidence: Evidence | None) -> dict[str, Any] | None:
    """The record that says most of what a row rests on."""
    return None if evidence is None or evidence.best is None else asdict(evidence.best)


def versions_words(versions: Sequence[str]) -> str:
    """Versions in a row, as the first and the last."""
    return versions[0] if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def evidence_words(evidence: Evidence) -> str:
    """What a row rests on, in a line."""
    parts = []
    if evidence.best is not None:
        best = evidence.best
        ran = best.max_rel and not best.verdict.startswith(("CPU", "MIX"))
        figure = f", error {float(best.max_rel):.1e} of max" if ran else ""
        more = f", and {evidence.others} more" if evidence.others else ""
        parts.append(f"measured {best.version}: {best.name} -> {best.verdict}{figure}{more}")
        if not best.max_rel and best.note:
            parts.append(best.note)
    parts += evidence.sources
    return "; ".join(parts) or "no record at this version"
