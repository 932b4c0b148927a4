"""The cases as a whole: each is a valid model, and together they decide every row of the table."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir
import pytest

from capabilities import EP, Facts, Row, Target, eps, target
from capabilities.versions import parse_version
from rewriter.probe.case import Case, every_case

PROBED = {ep.name: ep for ep in eps() if ep.name in {"qnn", "openvino", "openvino-ep"}}
NOT_STANDARD = {"SimplifiedLayerNormalization"}
"""Ops that ONNX Runtime registers under ai.onnx, which the checker does not know."""

UNDECIDED = {
    "com.microsoft::MatMulNBits [weight_prepacked=1/2]": "no CPU writes CUDA's layout",
}
"""Rows that no case can decide, with the reason."""
NOT_QUICK = {
    "MatMul [A rank 5 & B rank 5 & A dtype float16]": "garbage, another one in every run",
    "MatMul [A rank 5 & B rank > 2 & B rank <= 4 & A dtype float16]": "it crashes, or does not",
}
"""Rows that only the full probe tries, with the reason."""


@cache
def targets(ep: str, version: str, options: tuple[tuple[str, str], ...]) -> Target:
    return target(ep, version, options=dict(options))


@cache
def facts(case_name: str, ep: str) -> Facts:
    """Of the unit of a case; they are the same at every version of an EP."""
    case = CASES[case_name]
    newest = PROBED[ep].measured[-1]
    return case.built().facts(targets(ep, newest, tuple(case.options.items())))


CASES = {case.name: case for case in every_case()}


def of(ep: str) -> list[Case]:
    return [case for case in CASES.values() if not case.eps or ep in case.eps]


def deciding(ep: EP, version: str) -> dict[Row, list[Case]]:
    """The cases of each row that they are judged by.

    Rows that stand on reports alone are doubts, and decide nothing; a narrower row that says the
    same as a wider one decides what it holds for.
    """
    found: dict[Row, list[Case]] = {}
    for case in of(ep.name):
        goal = targets(ep.name, version, tuple(case.options.items()))
        known = facts(case.name, ep.name)
        judged = goal.judge(known)
        for row in goal.rows_of(case.op) if judged.row else ():
            same = row.verdict is judged.verdict and row.kind != "reported" and row.op == case.op
            if row is judged.row or (same and row.holds(known)):
                found.setdefault(row, []).append(case)
    return found


def rows(ep: EP) -> dict[Row, str]:
    """The rows to decide, with the newest version that each speaks of."""
    return {
        row: [v for v in ep.measured if parse_version(v) in row.versions][-1]
        for row in ep.rows()
        if row.kind != "reported"
    }


def named(row: Row) -> str:
    return f"{row.op} [{row.form}]"


@pytest.mark.parametrize("ep", PROBED)
def test_every_row_is_decided_by_a_case(ep: str) -> None:
    wanted = rows(PROBED[ep])
    decided = {v: deciding(PROBED[ep], v) for v in set(wanted.values())}
    left = [named(row) for row, version in wanted.items() if row not in decided[version]]
    assert [name for name in left if name not in UNDECIDED] == []


def test_no_reason_is_left_over() -> None:
    newest = {name: deciding(ep, ep.measured[-1]) for name, ep in PROBED.items()}
    decided = {named(row) for found in newest.values() for row in found}
    assert not decided & set(UNDECIDED)


@pytest.mark.parametrize("ep", PROBED)
def test_quick_decides_every_row_of_the_newest_version(ep: str) -> None:
    newest = PROBED[ep].measured[-1]
    found = deciding(PROBED[ep], newest)
    left = {named(row) for row, by in found.items() if not any(case.quick for case in by)}
    assert left - set(NOT_QUICK) == set()


@pytest.mark.parametrize("ep", ["qnn", "openvino"])
def test_no_form_of_the_newest_version_is_unknown(ep: str) -> None:
    newest = PROBED[ep].measured[-1]
    unknown = [
        case.name
        for case in of(ep)
        if targets(ep, newest, tuple(case.options.items())).judge(facts(case.name, ep)).row is None
    ]
    assert unknown == []


def test_quick_is_a_part() -> None:
    assert sum(case.quick for case in CASES.values()) < len(CASES) / 3


@pytest.mark.parametrize(("ep", "least"), [("qnn", 300), ("openvino", 200)])
def test_there_are_as_many_forms_as_promised(ep: str, least: int) -> None:
    assert len({(case.op, case.what) for case in of(ep)}) >= least


def test_every_model_is_valid() -> None:
    for case in CASES.values():
        made = case.built()
        kinds = {node.domain or node.op_type for node in made.model.graph}
        if not kinds & NOT_STANDARD and "com.microsoft" not in kinds:
            onnx.checker.check_model(ir.to_proto(made.model))
        assert made.unit.op_type == case.op.rpartition("::")[2]
        assert made.feeds, case.name


def test_a_case_is_the_same_whenever_it_is_built() -> None:
    for case in list(CASES.values())[::50]:
        one, other = (ir.to_proto(case.built().model) for _ in range(2))
        assert one == other, case.name
