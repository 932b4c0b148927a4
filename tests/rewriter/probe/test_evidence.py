"""What a run writes into the table: the same bytes each time, and nothing that is not computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from capabilities import Target, parse_version, read_rows
from capabilities.table import COLUMNS as ROW_COLUMNS
from rewriter.probe.case import every_case
from rewriter.probe.evidence import COLUMNS, Tables, write
from rewriter.probe.findings import CONFIRMED, Finding, judged
from rewriter.probe.verdict import Measured

WORDS = {"legal": "HTP", "illegal": "CPU", "wrong": "HTP-WRONG"}
ROWS = (
    ROW_COLUMNS,
    ("Abs", "X dtype int8/uint8", "illegal", "*", "8 bits", "measured:M/Abs|alone|int8"),
    ("Atan", "any", "legal", "*", "", "measured:M2/Atan|rank2|f32"),
    ("Atan", "rank 5", "illegal", "*", "rank 5", "measured:M2/Atan|rank5|f32;measured:L/atan"),
    ("IsNaN", "X dtype float", "wrong", "*", "infinities", "measured:M3/IsNaN|inf|f32"),
    ("Sum", "any", "legal", "*", "", "measured:M2/Sum|two|f32"),
    ("Sum", "data_0_2 given", "illegal", "<2.7", "two operands", "measured:M2/Sum|three|f32"),
)
"""A table that rests on records of others; those of Abs have no case here."""


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """The table's files, as qnn's."""
    found = Tables(tmp_path, "qnn")
    names = sorted(
        source.removeprefix("measured:") for *_, last in ROWS[1:] for source in last.split(";")
    )
    said = [COLUMNS, *((name, "2.7.0", "HTP", "1e-03", "1e-03", "") for name in names)]
    for path, lines in ((found.rows, ROWS), (found.evidence, said)):
        path.parent.mkdir()
        path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    return found


def findings(tables: Tables, version: str, words: Mapping[str, str] = WORDS) -> list[Finding]:
    """Findings that say of every case what the table says, or what ``words`` make of it."""
    number = parse_version(version)
    rows = tuple(row for row in read_rows(tables.rows) if number in row.versions)
    found = []
    for case in every_case():
        if case.op in {"Atan", "IsNaN", "Sum"} and not case.options:
            judgement = judged(case.built(), Target("qnn", version, rows))
            word = words.get(str(judgement.verdict), "CPU")
            found.append(Finding(case, judgement, Measured(word, "1e-03", "1e-03", "")))
    return found


def content(tables: Tables) -> tuple[bytes, bytes]:
    return tables.rows.read_bytes(), tables.evidence.read_bytes()


def records(tables: Tables) -> dict[tuple[str, str], str]:
    lines = tables.evidence.read_text(encoding="utf-8").splitlines()
    cells = [line.split("\t") for line in lines if line.startswith("P/")]
    return {
        (name, version): verdict
        for name, versions, verdict, *_ in cells
        for version in versions.split(",")
    }


def others(tables: Tables) -> list[str]:
    lines = tables.evidence.read_text(encoding="utf-8").splitlines()[1:]
    return [line for line in lines if not line.startswith("P/")]


def test_writing_twice_changes_nothing(tables: Tables) -> None:
    before = content(tables)
    for version in ("2.7.0", "2.4.0"):
        write(findings(tables, version), version, tables)
    once = content(tables)
    assert once != before
    for version in ("2.4.0", "2.7.0"):  # in the other order too
        write(reversed(findings(tables, version)), version, tables)
    assert content(tables) == once


def test_each_row_gets_the_records_that_it_decides(tables: Tables) -> None:
    for version in ("2.4.0", "2.7.0"):
        write(findings(tables, version), version, tables)
    known = records(tables)
    assert known["P/Atan|rank 5|f32", "2.7.0"] == "CPU"
    lines = tables.evidence.read_text(encoding="utf-8").splitlines()
    assert "P/Atan|rank 5|f32\t2.4.0,2.7.0\tCPU\t1e-03\t1e-03\t" in lines  # they say the same
    named, measured = set(), {name for name, _ in known}
    for row in read_rows(tables.rows):
        for source in row.evidence:
            name = source.removeprefix("measured:")
            if name in measured:
                named.add(name)
                said = {
                    known[name, v]
                    for v in ("2.4.0", "2.7.0")
                    if (name, v) in known and parse_version(v) in row.versions
                }
                assert said == {WORDS[row.verdict]}, (row, name)
    assert named == measured
    by_form = {(row.op, str(row.form)): row for row in read_rows(tables.rows)}
    assert "measured:P/Atan|rank 5|f32" in by_form["Atan", "rank 5"].evidence
    assert "measured:P/Atan|rank 5|f32" not in by_form["Atan", "any"].evidence


def test_what_contradicts_the_table_is_not_written(tables: Tables) -> None:
    before = content(tables)
    lies = findings(tables, "2.7.0", {"legal": "CPU", "illegal": "HTP", "wrong": "HTP"})
    assert all(finding.state != CONFIRMED for finding in lies)
    write(lies, "2.7.0", tables)
    assert content(tables) == before


def test_a_row_that_is_edited_loses_what_no_longer_decides_it(tables: Tables) -> None:
    write(findings(tables, "2.7.0"), "2.7.0", tables)
    text = tables.rows.read_text(encoding="utf-8")
    assert "\nAtan\trank 5\tillegal\t" in text
    edited = text.replace("\nAtan\trank 5\tillegal\t", "\nAtan\trank 5\twrong\t")
    tables.rows.write_text(edited, encoding="utf-8")
    write([], "2.7.0", tables)
    assert ("P/Atan|rank 5|f32", "2.7.0") not in records(tables)
    assert "P/Atan|rank 5|f32" not in tables.rows.read_text(encoding="utf-8")


def test_a_new_row_keeps_what_it_names_until_it_is_measured(tables: Tables) -> None:
    line = "Atan\trank 5 & input dtype float16\twrong\t>=2.7\tnew\tmeasured:P/Atan|rank 5|f16"
    text = tables.rows.read_text(encoding="utf-8")
    tables.rows.write_text(f"{text}{line}\n", encoding="utf-8")
    write([], "2.4.0", tables, replace=True)
    assert line in tables.rows.read_text(encoding="utf-8").splitlines()


def test_records_of_others_stay(tables: Tables) -> None:
    before = others(tables)
    write(findings(tables, "2.7.0"), "2.7.0", tables)
    assert others(tables) == before


def test_records_of_others_go_where_ours_cover_the_row(tables: Tables) -> None:
    versions = ("2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0")
    for version in versions:
        write(findings(tables, version), version, tables, replace=True)
    rows = {(row.op, str(row.form)): row for row in read_rows(tables.rows)}
    assert {source[:11] for source in rows["Atan", "rank 5"].evidence} == {"measured:P/"}
    assert rows["Abs", "X dtype int8/uint8"].evidence == ("measured:M/Abs|alone|int8",)
    assert others(tables) == ["M/Abs|alone|int8\t2.7.0\tHTP\t1e-03\t1e-03\t"]
    assert {version for name, version in records(tables) if "Atan|rank 5|f32" in name} == {
        *versions
    }
