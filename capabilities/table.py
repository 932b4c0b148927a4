"""Reading rows: ``rows/<ep>.tsv``, or any file of the same columns.

Columns: op, form, verdict, versions, why, evidence (several joined by ``;``). Lines that start
with ``#`` are comments. A why ``report: ...`` of a legal row is said in the report of every model
that such a unit stays in.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from capabilities.forms import Form
from capabilities.model import Row, Verdict
from capabilities.versions import VersionRange

COLUMNS = ("op", "form", "verdict", "versions", "why", "evidence")
_VERDICTS = frozenset({Verdict.LEGAL, Verdict.ILLEGAL, Verdict.WRONG})


class BadRow(ValueError):
    """A line of a table that cannot be read; the message names file and line."""


def parse_rows(lines: Iterable[str], source: str) -> Iterator[Row]:
    """Rows from the lines of a table.

    Raises:
        BadRow: a column is missing, or a form, verdict or range is none.
    """
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip() and line[0] != "#")
    header: list[str] | None = None
    for number, line in numbered:
        cells = next(csv.reader([line.rstrip("\n")], delimiter="\t", quoting=csv.QUOTE_NONE))
        if header is None:
            header = cells
            if tuple(header) != COLUMNS:
                raise BadRow(f"{source}:{number}: columns must be {', '.join(COLUMNS)}")
            continue
        try:
            yield _row(cells)
        except ValueError as error:
            raise BadRow(f"{source}:{number}: {error}") from None


def _row(cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} columns where {len(COLUMNS)} are needed")
    op, form, verdict, versions, why, evidence = (cell.strip() for cell in cells)
    if verdict not in _VERDICTS:
        raise ValueError(f"'{verdict}' is no verdict: legal, illegal or wrong")
    records = tuple(record.strip() for record in evidence.split(";") if record.strip())
    return Row(op, Form(form), Verdict(verdict), VersionRange(versions), why, records)


def read_rows(path: Path) -> tuple[Row, ...]:
    """Rows of a file of the user's (``--rows FILE``).

    Raises:
        BadRow: see :func:`parse_rows`.
        OSError: the file cannot be read.
    """
    with path.open(encoding="utf-8") as lines:
        return tuple(parse_rows(lines, path.name))


@cache
def builtin_rows(ep: str) -> tuple[Row, ...]:
    """The rows that ship with the package for an EP."""
    table = files("capabilities") / "rows" / f"{ep}.tsv"
    text = table.read_text(encoding="utf-8")
    return tuple(parse_rows(text.splitlines(), f"rows/{ep}.tsv"))
