"""Every form of a fused op that HTP was measured not to run, or to compute wrong: what we do.

The lines of ``../shared/measured/qnn_matrix.tsv`` that are not whole on HTP and right, for each
version: the table must not call the form legal, and the rules must end in forms that the table
calls legal, or leave the node with a sentence that says why. ``test_print_the_table`` shows all.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx_ir as ir
import pytest

from capabilities import Target, Verdict, target
from rewriter.facts import facts_of
from rewriter.lowering import lower, plan
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.placement import place
from tests import htp
from tests.shared import SHARED, needs_shared
from tests.shared.matrix_forms import build

pytestmark = needs_shared

MATRIX = SHARED / "measured" / "qnn_matrix.tsv"
FUSED = re.compile(
    r"GroupQueryAttention|(MultiHead)?Attention(\(ms\))?|RotaryEmbedding(\(ms\))?|TensorScatter"
    r"|MatMulNBits|GatherBlockQuantized|(Skip)?(Simplified)?LayerNormalization|RMSNormalization"
    r"|(Bias|BiasSplit|Fast|Quick)?Gelu|Swish|FusedMatMul|Trilu|CumSum|Range|Tile|Einsum|Q?MoE"
    r"|Loop|If|Scan|mask Attention23"
)
RUN = "2.7.0"
"""The version that is installed."""
WHOLE = {"HTP", "HTP+io"}
NOT_RUN = {".", "COMPARE_ERROR"}
"""Not measured, or the outputs could not be compared: nothing is known."""

STAYS = {
    r"\|(f64|bf16)$": "types that HTP, or ONNX Runtime itself, has no kernel for",
    r"^A/Range\|": "onnx's tests have the limits as run-time inputs, so the length is unknown",
    r"^A/(CumSum|Tile)\|(?!.*\[const params\])": "the axis or the repeats at run time",
    r"^A/Trilu\|tri[lu]_zero": "a tensor without elements",
    r"^A/(If|Loop|Scan)\|": "control flow with a condition, or values, known only at run time",
    r"^B/MoE\|silu k2": "three weights with silu, which ONNX Runtime's CPU kernel refuses too",
    r"^B/MultiHeadAttention\|packed qkv": "ONNX Runtime's CPU kernel refuses it too",
}
"""Lines whose node may stay, with a reason that the report gives: line -> what they are about."""


@dataclass(frozen=True)
class Line:
    """A line of the matrix: a form, and what was measured of it at some versions."""

    group: str
    case: str
    form: str
    dtype: str
    measured: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.group}/{self.case}|{self.form}|{self.dtype}"


@dataclass(frozen=True)
class Outcome:
    """What became of a form at a version: ``verdict`` of the table, and what the rules did."""

    verdict: str
    done: str
    why: str

    def __str__(self) -> str:
        return f"{self.verdict} > {self.done}: {self.why}"


def lines() -> list[Line]:
    """The lines of fused ops that some version does not run whole and right."""
    if not MATRIX.exists():
        return []
    found = []
    with MATRIX.open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
            cells = {v: row[v] for v in row if v and v[0].isdigit()}
            bad = tuple((v, c) for v, c in cells.items() if c not in WHOLE | NOT_RUN)
            if bad and FUSED.fullmatch(row["op"]):
                found.append(Line(row["group"], row["op"], row["form"], row["dtype"], bad))
    return found


@cache
def outcomes(line: Line) -> dict[str, Outcome]:
    """By version: what the table and the rules say of a line's graph."""
    model = build(line.group, line.case, line.form, line.dtype)
    return {v: outcome(model, line.case, target("qnn", v)) for v, _ in line.measured}


def outcome(model: ir.Model, case: str, ep: Target) -> Outcome:
    """Judge the node a form is about, and plan its graph."""
    inferred = model.clone()
    settle_shapes(inferred)
    op = case.removesuffix("(ms)").removeprefix("mask ").removesuffix("23")
    judged = [
        ep.judge(facts_of(node, inferred.opset_imports, ep))
        for node in ir.traversal.RecursiveGraphIterator(inferred.graph)
        if node.op_type == op
    ]
    verdicts, whys = {str(one.verdict) for one in judged}, {one.why for one in judged}
    report = plan(model, ep)
    verdict = "/".join(sorted(verdicts))
    assert all(node.why for node in report.stuck)
    assert all(tried.reason for node in report.stuck for tried in node.tried)
    if report.unknown:
        return Outcome(verdict, "unknown", ", ".join(sorted({o for _, o in report.unknown})))
    if report.stuck:
        return Outcome(verdict, "stuck", "; ".join(map(str, report.stuck)))
    rules = sorted({fired.rule for fired in report.fired})
    return Outcome(verdict, "lowered" if rules else "kept", ", ".join(rules) or "; ".join(whys))


@pytest.mark.parametrize("line", lines(), ids=str)
def test_a_form_that_does_not_run_is_lowered_or_refused(line: Line) -> None:
    allowed = {"lowered"}
    if any(re.search(pattern, str(line)) for pattern in STAYS):
        allowed.add("stuck")
    for version, found in outcomes(line).items():
        at = f"{line} @ {version} ({dict(line.measured)[version]}): {found}"
        if line.case != "If":  # which runs where all of its branches does
            assert set(found.verdict.split("/")) <= {Verdict.ILLEGAL, Verdict.WRONG}, at
        assert found.done in allowed, at


@pytest.mark.slow
@htp.needs_qnn
@pytest.mark.parametrize("line", [line for line in lines() if RUN in dict(line.measured)], ids=str)
def test_what_is_lowered_runs_whole_on_htp(line: Line, tmp_path: Path) -> None:
    """The table is asked for legality above; here the runtime itself is, at its version."""
    if outcomes(line)[RUN].done != "lowered":
        pytest.skip(f"it stays: {outcomes(line)[RUN]}")
    model = build(line.group, line.case, line.form, line.dtype)
    lower(model, target("qnn", RUN))
    ir.save(model, tmp_path / "model.onnx")
    placed = place(tmp_path / "model.onnx", ep="qnn", options={})
    assert (placed.on_cpu, placed.partitions, placed.full) == (0, 1, True), placed.reasons


def test_print_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints form, version, measured, and what table and rules say; no exception is left over."""
    counts: Counter[str] = Counter()
    stuck = set()
    table = [""]
    for line in lines():
        for version, found in outcomes(line).items():
            counts[f"{found.verdict} > {found.done}"] += 1
            stuck |= {str(line)} if found.done == "stuck" else set()
            cells = (str(line), version, dict(line.measured)[version], str(found)[:160])
            table.append("\t".join(cells))
    with capsys.disabled():
        sys.stdout.write("\n".join([*table, str(dict(counts)), ""]))
    stale = [p for p in STAYS if not any(re.search(p, line) for line in stuck)]
    assert not stale, "these lines are lowered now: take them off the list"
