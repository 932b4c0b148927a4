"""What a run of ``rewrite probe`` found, as text and as data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capabilities import Row, Target
from rewriter.errors import BadInput
from rewriter.probe.findings import CONFIRMED, CONTRADICTED, NEW, STATES, UNKNOWN, Finding
from rewriter.probe.proposal import Proposal
from rewriter.probe.verdict import Measured
from rewriter.report.explained import row_data

_EVIDENCE = 3
_MEASURED = ("verdict", "max_abs", "max_rel", "note")


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        target: whose table was compared.
        version: of the runtime.
        findings: one of each case.
        proposal: rows that would say what was found.
        seconds: that it took.
        whole: no case was left out, so that a row without one is worth a word.
    """

    target: Target
    version: str
    findings: Sequence[Finding]
    proposal: Proposal
    seconds: float
    whole: bool

    def of(self, state: str) -> list[Finding]:
        """The findings of a state."""
        return [finding for finding in self.findings if finding.state == state]

    def silent_rows(self) -> list[Row]:
        """Rows of the table that no case was judged by."""
        met = {finding.judged.row for finding in self.findings}
        return [row for row in self.target.rows if row not in met] if self.whole else []


def lines(run: Run) -> Iterator[str]:
    """The run as text."""
    counts = Counter(finding.state for finding in run.findings)
    stand_in = run.target.extrapolated_from
    compared = f", compared with the table of {stand_in}" if stand_in else ""
    yield (
        f"{run.target.ep} {run.version}: {len(run.findings)} cases in {run.seconds:.0f} s{compared}"
    )
    yield "  " + " · ".join(f"{counts[state]} {state}" for state in STATES)
    for state, words in (
        (CONTRADICTED, "the table is contradicted:"),
        (NEW, "no row of the table speaks of:"),
        (UNKNOWN, "nothing is known of the numbers (no reference, or one that shows nothing):"),
    ):
        if found := run.of(state):
            yield words
            for finding in found:
                yield from _finding(finding)
    if moved := [finding for finding in run.findings if finding.among_others is not None]:
        yield "otherwise where the process had run other models before:"
        for finding in moved:
            assert finding.among_others is not None
            yield f"  {finding.case.name}"
            yield f"    then      {_words(finding.among_others)}"
            yield f"    alone     {_words(finding.measured)}"
    if silent := run.silent_rows():
        yield f"rows that no case was judged by: {len(silent)}"
        yield from (f"  {row.op} [{row.form}] {row.verdict} {row.versions.text}" for row in silent)
    if run.proposal.diff:
        yield "rows that would say it, to be read before they are believed:"
        yield from run.proposal.diff.splitlines()
    if run.proposal.by_hand:
        yield "rows that would have to be narrower, for these are better than they say:"
        yield from (f"  {f.case.name}: {f.judged.row}" for f in run.proposal.by_hand)


def _finding(finding: Finding) -> Iterator[str]:
    row = finding.judged.row
    yield f"  {finding.case.name}"
    if row is not None:
        records = [name.partition(":")[2] for name in row.evidence]
        more = f" and {len(records) - _EVIDENCE} more" if len(records) > _EVIDENCE else ""
        why = f": {row.why}" if row.why else ""
        yield f"    table     {row.verdict} {row.op} [{row.form}] {row.versions.text}{why}"
        yield f"    evidence  {', '.join(records[:_EVIDENCE])}{more}"
    yield f"    measured  {_words(finding.measured)}"


def _words(measured: Measured) -> str:
    error = f"error {measured.max_rel} of max" if measured.max_rel else ""
    return " ; ".join(filter(None, (measured.verdict, error, measured.note)))


def data(runs: Iterable[Run]) -> dict[str, Any]:
    """Runs as JSON holds them."""
    return {"runs": [_run(run) for run in runs]}


def _run(run: Run) -> dict[str, Any]:
    counts = Counter(finding.state for finding in run.findings)
    return {
        "ep": run.target.ep,
        "version": run.version,
        "table": run.target.extrapolated_from or run.target.version,
        "seconds": round(run.seconds, 1),
        "counts": {state: counts[state] for state in STATES},
        "cases": [_data(finding) for finding in run.findings],
        "silent_rows": [row_data(row) for row in run.silent_rows()],
        "proposal": {
            "diff": run.proposal.diff,
            "by_hand": [finding.case.name for finding in run.proposal.by_hand],
        },
    }


def read(file: Path) -> list[tuple[str, str, dict[tuple[str, str], Measured]]]:
    """EP, version and what was measured, by a case's name and digest, of each run in a file.

    Raises:
        BadInput: the file is not what :func:`data` makes.
    """
    try:
        runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
        return [
            (
                run["ep"],
                run["version"],
                {
                    (one["case"], one["digest"]): Measured(*(one[key] for key in _MEASURED))
                    for one in run["cases"]
                },
            )
            for run in runs
        ]
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{file}: is not what 'rewrite probe --json' prints") from error


def _data(finding: Finding) -> dict[str, Any]:
    row, measured = finding.judged.row, finding.measured
    found: dict[str, Any] = {
        "case": finding.case.name,
        "digest": finding.case.built().digest(),
        "state": finding.state,
        "table": str(finding.judged.verdict),
        **{key: getattr(measured, key) for key in _MEASURED},
    }
    if finding.state != CONFIRMED and row is not None:
        found["row"] = row_data(row)
    if finding.among_others is not None:
        found["among_others"] = finding.among_others.verdict
    return found
