"""The rows that a run proposes, and what it is as data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import capabilities
from capabilities import Judgement, Target, Verdict, read_rows, target
from rewriter.errors import BadInput
from rewriter.probe.case import every_case
from rewriter.probe.findings import CONFIRMED, CONTRADICTED, NEW, Finding, judged
from rewriter.probe.proposal import Proposal, propose
from rewriter.probe.report import Run, data, lines, read
from rewriter.probe.verdict import Measured

ROWS = Path(capabilities.__file__).parent / "rows" / "qnn.tsv"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROWS, tmp_path / "qnn.tsv"))


def newer() -> Target:
    """A version that nobody has measured."""
    return target("qnn", "2.8.0")


def finding(name: str, verdict: str, on: Target, note: str = "") -> Finding:
    case = next(case for case in every_case() if case.name == name)
    return Finding(case, judged(case.built(), on), Measured(verdict, note=note))


def applied(rows: Path, proposal: Proposal) -> list[str]:
    """The lines that a diff adds, once those it takes away have been seen to be in the file."""
    text = rows.read_text(encoding="utf-8").splitlines()
    changed = [line for line in proposal.diff.splitlines()[2:] if line[:1] in "+-"]
    assert all(line[1:] in text for line in changed if line[0] == "-")
    return [line[1:] for line in changed if line[0] == "+"]


def test_a_row_that_a_new_version_disproves_ends_there(rows: Path) -> None:
    on = newer()
    assert on.extrapolated_from == "2.7.0"
    found = [finding(f"P/Erf|rank 3|{dtype}", "HTP", on) for dtype in ("f32", "f16")]
    assert {one.state for one in found} == {CONTRADICTED}
    ended, begun = sorted(
        applied(rows, propose(found, on, "2.8.0", rows)), key=lambda row: "P/" in row
    )
    assert ended.split("\t")[1:4] == ["any", "illegal", "<2.8"]
    assert begun.split("\t")[:4] == ["Erf", "any", "legal", ">=2.8"]
    assert begun.split("\t")[5] == "measured:P/Erf|rank 3|f32;measured:P/Erf|rank 3|f16"


def test_a_row_that_holds_elsewhere_gets_a_narrow_one_beside_it(rows: Path) -> None:
    on = newer()
    found = [
        finding("P/Softmax|rank 4|f32", "HTP", on),
        finding("P/Softmax|axis 1 of 3|f32", "HTP-WRONG", on),
    ]
    assert [one.state for one in found] == [CONFIRMED, CONTRADICTED]
    (line,) = applied(rows, propose(found, on, "2.8.0", rows))
    op, form, verdict, versions, why, _ = line.split("\t")
    assert (op, verdict, versions, why) == ("Softmax", "wrong", ">=2.8", "HTP-WRONG")
    assert form == "input dtype float & input rank 3 & axis=1"


def test_what_no_row_speaks_of_gets_one(rows: Path) -> None:
    on = newer()
    one = finding("P/Softmax|rank 4|f32", "CPU", on, "reason=who knows")
    found = [replace(one, judged=Judgement(Verdict.UNKNOWN))]
    assert found[0].state == NEW
    (line,) = applied(rows, propose(found, on, "2.8.0", rows))
    assert line.split("\t")[1:5] == [
        "input dtype float & input rank 4 & axis=-1", "illegal", ">=2.8", "CPU reason=who knows",
    ]  # fmt: skip


def test_what_no_row_beside_can_say_is_left_to_a_person(rows: Path) -> None:
    on = newer()
    found = [
        finding("P/Erf|rank 3|f32", "HTP", on),
        finding("P/Erf|rank 5|f32", "CPU", on),
    ]
    proposal = propose(found, on, "2.8.0", rows)
    assert not proposal.diff
    assert proposal.by_hand == (found[0],)


def test_the_lines_that_are_proposed_can_be_read(rows: Path) -> None:
    on = newer()
    found = [finding("P/Erf|rank 3|f32", "HTP", on), finding("P/Softmax|rank 4|f32", "CRASH", on)]
    lines_ = applied(rows, propose(found, on, "2.8.0", rows))
    rows.write_text("\n".join([rows.read_text(encoding="utf-8").splitlines()[0], *lines_]), "utf-8")
    assert {row.op for row in read_rows(rows)} == {"Erf", "Softmax"}


@pytest.mark.parametrize(
    ("text", "left"),
    [("*", "<2.8"), (">=2.6", ">=2.6,<2.8"), ("2.3 | >=2.6", "2.3 | >=2.6,<2.8")],
)
def test_ends_of_ranges(text: str, left: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    head = ROWS.read_text(encoding="utf-8").splitlines()[0]
    rows.write_text(f"{head}\nErf\tany\tillegal\t{text}\tso it is\tdeclared:me\n", encoding="utf-8")
    (row,) = read_rows(rows)
    on = Target("qnn", "2.8.0", (row,))
    found = [finding("P/Erf|rank 3|f32", "HTP", on)]
    assert found[0].judged.row == row
    assert applied(rows, propose(found, on, "2.8.0", rows))[0].split("\t")[3] == left


def run_of(*findings: Finding, on: Target) -> Run:
    return Run(on, "2.8.0", findings, Proposal("", ()), 1.5, whole=True)


def test_a_report_names_case_row_evidence_and_what_was_measured() -> None:
    on = newer()
    found = [finding("P/Erf|rank 3|f32", "HTP", on), finding("P/Softmax|rank 4|f32", "HTP", on)]
    text = "\n".join(lines(run_of(*found, on=on)))
    assert "qnn 2.8.0: 2 cases in 2 s, compared with the table of 2.7.0" in text
    assert "1 confirmed · 1 contradicted · 0 new · 0 no reference" in text
    assert "  P/Erf|rank 3|f32\n    table     illegal Erf [any] *: " in text
    assert "\n    evidence  M" in text or "\n    evidence  P" in text
    assert "\n    measured  HTP\n" in text


def test_what_is_printed_as_json_can_be_read_again(tmp_path: Path) -> None:
    on = newer()
    found = finding("P/Erf|rank 3|f32", "CPU", on, "reason=no")
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data([run_of(found, on=on)])), encoding="utf-8")
    ((ep, version, measured),) = read(file)
    assert (ep, version) == ("qnn", "2.8.0")
    assert measured == {(found.case.name, found.case.built().digest()): found.measured}


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"runs": [{"ep": "qnn", "version": "1", "cases": [{}]}]}']
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="is not what 'rewrite probe --json' prints"):
        read(file)
