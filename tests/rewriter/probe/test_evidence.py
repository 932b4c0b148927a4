"""What a run writes into the table: the same bytes each time, and nothing that is not computed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import capabilities
from capabilities import Target, parse_version, read_rows, target
from rewriter.probe.case import every_case
from rewriter.probe.evidence import Tables, write
from rewriter.probe.findings import CONFIRMED, Finding, judged
from rewriter.probe.verdict import Measured

WORDS = {"legal": "HTP", "illegal": "CPU", "wrong": "HTP-WRONG"}
OPS = {"Softmax", "Atan", "IsNaN", "Sum", "com.microsoft::RotaryEmbedding"}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A copy of the table of qnn, without records of ours."""
    found = Tables(tmp_path, "qnn")
    for name in ("rows", "evidence"):
        (tmp_path / name).mkdir()
        shutil.copy(Path(capabilities.__file__).parent / name / "qnn.tsv", tmp_path / name)
    write([], "2.7.0", found)
    for path in (found.rows, found.evidence):
        kept = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:2] != "P/"]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    write([], "2.7.0", found)
    return found


def findings(on: Target, words: Mapping[str, str] = WORDS) -> list[Finding]:
    """Findings that say of every case what the table says, or what ``words`` make of it."""
    found = []
    for case in every_case():
        if case.op in OPS and not case.options:
            judgement = judged(case.built(), on)
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


def test_writing_twice_changes_nothing(tables: Tables) -> None:
    before = content(tables)
    for version in ("2.7.0", "2.4.0"):
        write(findings(target("qnn", version)), version, tables)
    once = content(tables)
    assert once != before
    for version in ("2.4.0", "2.7.0"):  # in the other order too
        write(reversed(findings(target("qnn", version))), version, tables)
    assert content(tables) == once


def test_each_row_gets_the_records_that_it_decides(tables: Tables) -> None:
    for version in ("2.4.0", "2.7.0"):
        write(findings(target("qnn", version)), version, tables)
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
    lies = findings(target("qnn", "2.7.0"), {"legal": "CPU", "illegal": "HTP", "wrong": "HTP"})
    assert all(finding.state != CONFIRMED for finding in lies)
    write(lies, "2.7.0", tables)
    assert content(tables) == before


def test_a_row_that_is_edited_loses_what_no_longer_decides_it(tables: Tables) -> None:
    write(findings(target("qnn", "2.7.0")), "2.7.0", tables)
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
    def others() -> list[str]:
        lines = tables.evidence.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not line.startswith("P/")]

    before = others()
    write(findings(target("qnn", "2.7.0")), "2.7.0", tables)
    assert others() == before


def test_records_of_others_go_where_ours_cover_the_row(tables: Tables) -> None:
    versions = ("2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0")
    for version in versions:
        write(findings(target("qnn", version)), version, tables, replace=True)
    rows = {(row.op, str(row.form)): row for row in read_rows(tables.rows)}
    assert {source[:11] for source in rows["Atan", "rank 5"].evidence} == {"measured:P/"}
    assert any(source[:10] == "measured:M" for source in rows["Abs", "X dtype int8/uint8"].evidence)
    lines = tables.evidence.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith("M2/Atan|rank5")]
    assert [line for line in lines if line.startswith("M/Abs|alone|int8")]
    assert {version for name, version in records(tables) if "Atan|rank 5|f32" in name} == {
        *versions
    }
