"""Rows that would say what was measured: a patch to read before it is believed.

Where a version disproves a row with every case that the row decides, the row's range ends there
and another row begins. Where only some cases do, and where no row speaks, a row as narrow as the
case is proposed. What no added row can say, since the worst of all that hold counts, is left to a
person.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from capabilities import Row, Target, Verdict, VersionRange, eps, parse_version
from rewriter.probe.case import Case
from rewriter.probe.findings import CONTRADICTED, NEW, Finding

_WORSE = {Verdict.LEGAL: 0, Verdict.ILLEGAL: 1, Verdict.WRONG: 2}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the rows would have to say.

    Attributes:
        diff: of the file of rows; empty where no line would do.
        by_hand: findings that need a row to be made narrower.
    """

    diff: str
    by_hand: tuple[Finding, ...]


def propose(findings: Sequence[Finding], target: Target, version: str, path: Path) -> Proposal:
    """The patch of a file of rows.

    Args:
        findings: of one run.
        target: that was compared.
        version: of the runtime.
        path: the file of the rows.
    """
    measured = [parse_version(v) for ep in eps() if ep.name == target.ep for v in ep.measured]
    newest = parse_version(version) >= max(measured)
    since = f">={_short(version)}" if newest else _short(version)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    after: list[str] = list(lines)
    added, by_hand = list[str](), list[Finding]()
    disproved = _disproved(findings) if newest else {}
    for row, against in disproved.items():
        for number, line in enumerate(after):
            cells = line.split("\t")
            if cells[:4] == [row.op, str(row.form), row.verdict, row.versions.text]:
                ended = _ended(row.versions, version)
                left = any(known in VersionRange(ended) for known in measured)
                after[number] = "\t".join([*cells[:3], ended, *cells[4:]]) if left else ""
                added.append(_line(row.op, str(row.form), since, against))
    for finding in findings:
        if finding.judged.row in disproved or finding.state not in {CONTRADICTED, NEW}:
            continue
        if finding.state == NEW or _sinks(finding):
            form = _narrow(finding.case, target)
            added.append(_line(finding.case.op, form, since, [finding]))
        else:
            by_hand.append(finding)
    head = next(n for n, line in enumerate(after) if not line.startswith("#")) + 1
    body = sorted([*filter(None, after[head:]), *dict.fromkeys(added)], key=_by_op)
    diff = unified_diff(lines, [*after[:head], *body], f"a/{path.name}", f"b/{path.name}", n=0)
    return Proposal("".join(diff), tuple(by_hand))


def _disproved(findings: Iterable[Finding]) -> dict[Row, list[Finding]]:
    """Rows with which no case agrees, while all say the same instead."""
    by_row: dict[Row, list[Finding]] = {}
    for finding in findings:
        if finding.judged.row is not None and finding.measured.known:
            by_row.setdefault(finding.judged.row, []).append(finding)
    return {
        row: found
        for row, found in by_row.items()
        if all(one.state == CONTRADICTED for one in found)
        and len({one.measured.meaning for one in found}) == 1
    }


def _sinks(finding: Finding) -> bool:
    """Whether a row beside the present one can say it: worse verdicts win."""
    return _WORSE[finding.measured.meaning] > _WORSE[finding.judged.verdict]


def _line(op: str, form: str, since: str, findings: Sequence[Finding]) -> str:
    first = findings[0].measured
    why = (
        "" if first.meaning is Verdict.LEGAL else " ".join(f"{first.verdict} {first.note}".split())
    )
    evidence = ";".join(f"measured:{finding.case.name}" for finding in findings)
    return "\t".join((op, form, str(first.meaning), since, why, evidence)) + "\n"


def _narrow(case: Case, target: Target) -> str:
    """A form that holds for little more than the case."""
    built = case.built()
    facts = built.facts(target)
    name, first = next(iter(facts.inputs.items()))
    terms = [f"{name} dtype {first.dtype}"]
    terms += [f"{name} rank {first.rank}"] if first.rank is not None else []
    given = {attribute.name for attribute in built.unit.attributes.values()}
    terms += [
        f"{key}={value}"
        for key, value in sorted(facts.attributes.items())
        if key in given and isinstance(value, int | str) and str(value) and " " not in str(value)
    ]
    terms += [f"option {key}" for key in sorted(case.options)]
    return " & ".join(terms)


def _ended(versions: VersionRange, version: str) -> str:
    """The range without what comes from a version on."""
    number = parse_version(version)
    kept = []
    for text in (part.strip() for part in versions.text.split("|")):
        if number not in VersionRange(text):
            kept.append(text)
        else:
            kept.append(f"<{_short(version)}" if text == "*" else f"{text},<{_short(version)}")
    return " | ".join(kept)


def _short(version: str) -> str:
    """``2.7`` for ``2.7.0``."""
    return version.removesuffix(".0")


def _by_op(line: str) -> tuple[bool, str]:
    op = line.partition("\t")[0]
    return op != "*", op
