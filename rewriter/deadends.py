"""The static plan: does every illegal form have a path of rules to forms that are legal?

Rows and emits are compared by the text of their forms, since what holds of a node is only known
with the node: a rule whose form is another one than the row's *may* take it. What is listed here
is therefore certain (no rule takes any part of the form, or all build what is illegal in every
form); what is not listed can still be refused, with its reason, on a real model.
"""

from __future__ import annotations

from dataclasses import dataclass

from capabilities import Row, Target, Verdict
from rewriter.rule import Emit, Registry, Rule


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """An illegal form that no chain of rules can replace, and why."""

    row: Row
    reason: str


def dead_ends(target: Target, rules: Registry) -> list[DeadEnd]:
    """Every row of a target that ends nowhere, in the table's order."""
    found = []
    for row in target.rows:
        if row.verdict is Verdict.LEGAL or "*" in row.op or row.kind == "reported":
            continue
        if reason := _stuck(target, rules, row.op, str(row.form), frozenset()):
            found.append(DeadEnd(row, reason))
    return found


def _stuck(target: Target, rules: Registry, op: str, form: str, came_from: frozenset[str]) -> str:
    """Why an op in a form cannot be replaced; empty if it can."""
    candidates = rules.lowering(op)
    if not candidates and not rules.raising(op):
        return "no rule lowers it"
    reasons = [_unusable(target, rules, rule, came_from | {op}) for rule in candidates]
    if candidates and all(reasons):
        return "; ".join(
            f"{rule.name}: {reason}" for rule, reason in zip(candidates, reasons, strict=True)
        )
    return ""


def _unusable(target: Target, rules: Registry, rule: Rule, came_from: frozenset[str]) -> str:
    if not rule.emits:
        return "builds nothing, it says what to do"
    for emit in rule.emits:
        if not _never_legal(target, emit):
            continue
        if emit.op in came_from:
            return f"builds {emit} again"
        if _stuck(target, rules, emit.op, str(emit.form), came_from):
            return f"builds {emit}, which is illegal and stays"
    return ""


def _never_legal(target: Target, emit: Emit) -> bool:
    """No row allows the op in any form, or a row forbids just this form (or every form)."""
    rows = [row for row in target.rows_of(emit.op) if row.kind != "reported"]
    forbidden = {
        str(row.form) for row in rows if row.verdict is not Verdict.LEGAL and row.op == emit.op
    }
    if forbidden & {"any", str(emit.form)}:
        return True
    return not any(row.verdict is Verdict.LEGAL for row in rows)
