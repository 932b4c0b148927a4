"""Writing what was measured into the table: records, and the rows that rest on them.

Nothing is typed by hand: which rows a record speaks for follows from the case's model and the
rows themselves, at every version that has a record. So writing twice changes nothing, and a row
that was edited loses the records that no longer decide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capabilities import Row, Target, eps, parse_version, read_rows
from rewriter.probe.case import Case, every_case
from rewriter.probe.findings import CONFIRMED, Finding, judged
from rewriter.probe.verdict import Measured

COLUMNS = ("record", "version", "verdict", "max_abs", "max_rel", "note")
_OURS = "P/"
_MEASURED = "measured:"

Known = dict[str, dict[str, Measured]]
"""Our records, by name and version."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The files of an EP in a folder that is laid out as the package ``capabilities``."""

    folder: Path
    ep: str

    @property
    def rows(self) -> Path:
        """The rows."""
        return self.folder / "rows" / f"{self.ep}.tsv"

    @property
    def evidence(self) -> Path:
        """The records."""
        return self.folder / "evidence" / f"{self.ep}.tsv"


def write(
    findings: Iterable[Finding], version: str, tables: Tables, *, replace: bool = False
) -> None:
    """Add what a version confirmed to its records, and take out what it no longer says.

    Args:
        findings: of one run.
        version: of the runtime.
        tables: the files to change.
        replace: where our records cover every measured version of a row, it stands on them alone,
            and records of others that no row needs go.
    """
    head, others, known = _read(tables.evidence)
    for finding in findings:
        if not finding.measured.known:  # it says nothing, so what was known stays
            continue
        of_case = known.setdefault(finding.case.name, {})
        of_case.pop(version, None)
        if finding.state == CONFIRMED:
            of_case[version] = finding.measured
    spoken = _spoken(known, tables)
    names = {name for row_names in spoken.values() for name in row_names}
    lines = [line for name in sorted(names) for line in _lines(name, known[name])]
    covered = _covered(spoken, known, tables.ep) if replace else frozenset[Row]()
    _store(tables.rows, _rewritten(tables.rows, spoken, covered))
    if replace:
        needed = {name for row in read_rows(tables.rows) for name in row.evidence}
        others = [line for line in others if _MEASURED + line.partition("\t")[0] in needed]
    _store(tables.evidence, [*head, *others, *lines])


def _read(path: Path) -> tuple[list[str], list[str], Known]:
    """Comments and columns, the lines of other records, and ours."""
    head: list[str] = []
    others: list[str] = []
    known: Known = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = line.split("\t")
        if line[:1] == "#" or tuple(cells) == COLUMNS:
            head.append(line)
        elif line.startswith(_OURS):
            of_case = known.setdefault(cells[0], {})
            of_case |= {version: Measured(*cells[2:]) for version in cells[1].split(",")}
        else:
            others.append(line)
    return head, others, known


def _lines(name: str, measured: Mapping[str, Measured]) -> Iterator[str]:
    """A record's lines: versions that say the same share one."""
    alike: dict[Measured, list[str]] = {}
    for version in sorted(measured, key=parse_version):
        alike.setdefault(measured[version], []).append(version)
    for said, at in alike.items():
        cells = said.verdict, said.max_abs, said.max_rel, said.note
        yield "\t".join((name, ",".join(at), *cells))


def _spoken(known: Known, tables: Tables) -> dict[Row, list[str]]:
    """The names of our records that each row rests on; what disagrees is taken out of ``known``.

    A record speaks for a row that decides it at some version, if it says the same at all
    versions of the row: at some of them a narrower row may hold.
    """
    rows, cases = read_rows(tables.rows), {case.name: case for case in every_case()}
    spoken: dict[Row, list[str]] = {}
    for name, measured in known.items():
        deciding = _deciding(cases[name], measured, rows, tables.ep) if name in cases else {}
        for version in measured.keys() - deciding.keys():
            del measured[version]
        for row in dict.fromkeys(deciding.values()):
            said = {m.meaning for v, m in measured.items() if parse_version(v) in row.versions}
            if said == {row.verdict}:
                spoken.setdefault(row, []).append(name)
    return spoken


def _deciding(
    case: Case, measured: Mapping[str, Measured], rows: Sequence[Row], ep: str
) -> dict[str, Row]:
    """The row that a case is judged by at each version at which they agree."""
    built, found = case.built(), dict[str, Row]()
    for version, seen in measured.items():
        number = parse_version(version)
        at = Target(ep, version, tuple(row for row in rows if number in row.versions))
        row = judged(built, at).row
        if row is not None and row.verdict is seen.meaning:
            found[version] = row
    return found


def _covered(spoken: Mapping[Row, Sequence[str]], known: Known, ep: str) -> frozenset[Row]:
    """Rows with a record of ours at every measured version that they speak of."""
    measured = next(one.measured for one in eps() if one.name == ep)
    return frozenset(
        row
        for row, names in spoken.items()
        if {v for v in measured if parse_version(v) in row.versions}
        <= {version for name in names for version in known[name]}
    )


def _rewritten(
    path: Path, spoken: Mapping[Row, Sequence[str]], covered: frozenset[Row]
) -> list[str]:
    """The lines of the rows, with our records as they are now behind those of others."""
    ours = {_identity(row): sorted(names) for row, names in spoken.items()}
    alone = {_identity(row) for row in covered}
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        *cells, evidence = line.split("\t")
        if line[:1] == "#" or cells[:1] == ["op"] or not cells:
            lines.append(line)
            continue
        theirs = _MEASURED if tuple(cells[:4]) in alone else _MEASURED + _OURS
        kept = [source for source in evidence.split(";") if not source.startswith(theirs)]
        kept += [f"{_MEASURED}{name}" for name in ours.get(tuple(cells[:4]), ())]
        # A row that is new names what will be measured, and would be no firm row without it.
        lines.append("\t".join([*cells, ";".join(kept) or evidence]))
    return lines


def _identity(row: Row) -> tuple[str, ...]:
    return row.op, str(row.form), str(row.verdict), row.versions.text


def _store(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
