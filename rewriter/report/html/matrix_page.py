"""The matrix as one page: op and form against version, each cell with its reason and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capabilities import Row
from rewriter.explanation import evidence_for
from rewriter.matrix import MARKS, VERDICTS, Line, Matrix
from rewriter.report.explained import evidence_words, versions_words
from rewriter.report.html.template import rendered


@dataclass(frozen=True, slots=True)
class Cell:
    """One version of a line: the verdict, and which reason it leads to; none where no row is."""

    verdict: str
    reason: int | None


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of the table, and what it rests on.

    Attributes:
        number: which one of its EP.
        op: of the row.
        form: of the row.
        verdict: of the row.
        versions: that it holds for.
        why: of the row.
        evidence: for each span of versions with one record that says most.
        ways: which rules lower the op where it is not legal, or why none does.
    """

    number: int
    op: str
    form: str
    verdict: str
    versions: str
    why: str
    evidence: tuple[str, ...]
    ways: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of the matrix, ready for the page."""

    op: str
    form: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One EP, ready for the page."""

    matrix: Matrix
    lines: tuple[Shown, ...]
    reasons: tuple[Reason, ...]
    counts: str


def matrix_page(found: Sequence[Matrix], op: str = "") -> str:
    """The page, as text.

    Args:
        found: matrices of the EPs to show.
        op: the one op they are of, for the title; empty for all.
    """
    parts = [_part(one) for one in found]
    return rendered("matrix.html.jinja", parts=parts, marks=MARKS, op=op)


def _part(matrix: Matrix) -> Part:
    lines, reasons = [], list[Reason]()
    for line in matrix.lines:
        numbers: dict[int, int] = {}
        for row in line.rows:
            if row is not None and id(row) not in numbers:
                numbers[id(row)] = len(reasons)
                reasons.append(_reason(len(reasons), line, row, matrix))
        cells = zip(line.verdicts, line.rows, strict=True)
        lines.append(
            Shown(
                line.op,
                line.form,
                tuple(Cell(v, None if row is None else numbers[id(row)]) for v, row in cells),
            )
        )
    counts = ", ".join(f"{matrix.count(verdict)} {verdict}" for verdict in VERDICTS)
    return Part(matrix, tuple(lines), tuple(reasons), counts)


def _reason(number: int, line: Line, row: Row, matrix: Matrix) -> Reason:
    ways = f"lowered by {', '.join(line.rules)}" if line.rules else line.dead
    versions = [v for v, other in zip(matrix.versions, line.rows, strict=True) if other is row]
    return Reason(
        number,
        line.op,
        line.form,
        str(row.verdict),
        versions_words(versions) if versions != [""] else "every version",
        row.why,
        tuple(_evidence(row, matrix.ep, versions)),
        "" if str(row.verdict) == "legal" else ways,
    )


def _evidence(row: Row, ep: str, versions: Sequence[str]) -> Iterator[str]:
    """What it rests on at each version, once where it is the same."""
    seen = set[str]()
    for version in reversed(versions):
        words = evidence_words(evidence_for(row, ep, version))
        bare = words.replace(f"measured {version}: ", "measured: ")
        if bare not in seen:
            seen.add(bare)
            yield words
