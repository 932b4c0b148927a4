from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from capabilities import targets
from capabilities.facts import Facts, Tensor
from capabilities.forms import Form
from capabilities.model import Row, Target, Verdict
from capabilities.table import COLUMNS
from capabilities.targets import EP, UnknownTarget, eps, register, target
from capabilities.versions import VersionRange

PRODUCT = Facts(
    op="MatMul",
    opset=21,
    inputs={"A": Tensor("float", (4, 8)), "B": Tensor("float", (8, 4), const=True)},
    outputs={"Y": Tensor("float", (4, 4))},
)
SKIP = Facts(
    op="com.microsoft::SkipSimplifiedLayerNormalization",
    inputs={name: Tensor("float", (1, 4, 8)) for name in ("input", "skip")},
    outputs={"output": Tensor("float", (1, 4, 8))},
    standard=False,
)


def row(op: str, form: str, verdict: Verdict) -> Row:
    return Row(op, Form(form), verdict, VersionRange("*"), str(verdict), ("declared:test",))


def made_of(*rows: Row) -> Target:
    return Target("test", "1.0", rows)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_EPS", dict(targets._EPS))


def test_the_default_version_is_the_newest_measured() -> None:
    made = target("qnn")
    assert (made.version, made.extrapolated_from, str(made)) == ("2.7.0", None, "qnn@2.7.0")
    assert made.static_only


def test_the_version_may_be_in_the_name_or_beside_it() -> None:
    assert target("qnn@2.4.0").rows == target("qnn", "2.4.0").rows
    assert target("qnn@2.4.0").rows != target("qnn@2.7.0").rows


@pytest.mark.parametrize("asked", ["qnn@2.7", "qnn@2"])
def test_a_series_means_its_newest_measured(asked: str) -> None:
    made = target(asked)
    assert (made.version, made.extrapolated_from) == ("2.7.0", None)


@pytest.mark.parametrize(("asked", "stand_in"), [("2.7.1", "2.7.0"), ("2.4.5", "2.4.0")])
def test_a_release_in_between_is_extrapolated_from_the_one_below(asked: str, stand_in: str) -> None:
    made = target("qnn", asked)
    assert (made.version, made.extrapolated_from) == (asked, stand_in)
    assert made.rows == target("qnn", stand_in).rows


@pytest.mark.parametrize("asked", ["qnn@9", "qnn@1.0", "qnn@new", "qnn@2.2.0"])
def test_a_version_that_never_was_lists_those_that_are(asked: str) -> None:
    with pytest.raises(UnknownTarget, match=r"2\.3\.0, 2\.4\.0, 2\.5\.0, 2\.6\.0, 2\.7\.0"):
        target(asked)


def test_an_ep_that_never_was_lists_those_that_are() -> None:
    with pytest.raises(UnknownTarget, match=r"did you mean qnn\?.*known: .*onnx-standard.*qnn"):
        target("qnm")


def test_the_version_of_the_standard_is_the_highest_opset() -> None:
    made = target("onnx-standard@22")
    assert (made.version, made.opset, str(made)) == ("22", 22, "onnx-standard@22")
    assert (target("onnx-standard").version, target("onnx-standard").opset) == ("", None)
    assert target("qnn").opset is None


@pytest.mark.parametrize("version", ["1.0", "22.0", "12", "99", "new"])
def test_an_opset_that_never_was_says_which_there_are(version: str) -> None:
    with pytest.raises(UnknownTarget, match=f"opset from 13 to [0-9]+, not {version}"):
        target("onnx-standard", version)


def test_onnx_knows_every_opset_of_the_standard() -> None:
    onnx = pytest.importorskip("onnx")
    (standard,) = (ep for ep in eps() if ep.name == "onnx-standard")
    assert standard.opsets[-1] <= onnx.defs.onnx_opset_version()


def test_an_ep_without_versions_says_so() -> None:
    with pytest.raises(UnknownTarget, match="portable has no versions"):
        target("portable@1")


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (PRODUCT, Verdict.LEGAL),
        (SKIP, Verdict.ILLEGAL),
        (replace(PRODUCT, newer=True), Verdict.ILLEGAL),
    ],
)
def test_the_standard_is_judged_by_the_schema(facts: Facts, verdict: Verdict) -> None:
    assert target("onnx-standard").judge(facts).verdict is verdict


def test_no_row_means_unknown() -> None:
    judgement = made_of(row("MatMul", "A rank 3", Verdict.LEGAL)).judge(PRODUCT)
    assert (judgement.verdict, judgement.row, judgement.form) == (Verdict.UNKNOWN, None, "any")


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ((Verdict.LEGAL,), Verdict.LEGAL),
        ((Verdict.LEGAL, Verdict.ILLEGAL), Verdict.ILLEGAL),
        ((Verdict.WRONG, Verdict.ILLEGAL, Verdict.LEGAL), Verdict.WRONG),
    ],
)
def test_the_worst_verdict_wins(verdicts: tuple[Verdict, ...], worst: Verdict) -> None:
    rows = [row("MatMul", "any", v) for v in verdicts]
    assert made_of(*rows).judge(PRODUCT).verdict is worst
    assert made_of(*reversed(rows)).judge(PRODUCT).verdict is worst


def test_of_equally_bad_rows_the_op_s_own_is_named() -> None:
    rows = row("*", "any", Verdict.ILLEGAL), row("MatMul", "A rank 2", Verdict.ILLEGAL)
    assert made_of(*rows).judge(PRODUCT).form == "A rank 2"


@pytest.mark.parametrize(
    ("pattern", "facts", "speaks"),
    [
        ("*", PRODUCT, True),
        ("ai.onnx::*", PRODUCT, True),
        ("ai.onnx::*", SKIP, False),
        ("com.microsoft::*", SKIP, True),
        ("SkipSimplifiedLayerNormalization", SKIP, False),
    ],
)
def test_a_row_names_its_ops(pattern: str, facts: Facts, speaks: bool) -> None:
    found = made_of(row(pattern, "any", Verdict.LEGAL)).judge(facts)
    assert (found.verdict is Verdict.LEGAL) is speaks


def test_the_user_s_illegal_wins_over_the_table() -> None:
    assert target("qnn").judge(PRODUCT).verdict is Verdict.LEGAL
    judgement = target("qnn", illegal=["MatMul[A rank 2]"]).judge(PRODUCT)
    assert (judgement.verdict, judgement.why) == (Verdict.ILLEGAL, "you said so")


def test_the_user_s_legal_wins_over_the_table() -> None:
    assert target("qnn").judge(SKIP).verdict is Verdict.ILLEGAL
    legal = "com.microsoft::SkipSimplifiedLayerNormalization"
    assert target("qnn", legal=[legal]).judge(SKIP).verdict is Verdict.LEGAL


def test_an_override_that_does_not_hold_leaves_the_table() -> None:
    assert target("qnn", illegal=["MatMul[A rank 3]"]).judge(PRODUCT).verdict is Verdict.LEGAL


@pytest.mark.parametrize("text", ["", "MatMul[", "MatMul[odd form]", "Mat Mul"])
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"form|is not OP"):
        target("qnn", legal=[text])


def test_the_user_s_file_of_rows_wins_over_the_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    lines = ("\t".join(COLUMNS), "MatMul\tB const\twrong\t*\tseen on my board\treported:me")
    path.write_text("\n".join(lines), encoding="utf-8")
    judgement = target("qnn", rows=[path]).judge(PRODUCT)
    assert (judgement.verdict, judgement.why) == (Verdict.WRONG, "seen on my board")


def test_options_reach_the_target() -> None:
    assert target("qnn", options={"soc_model": "60"}).options == {"soc_model": "60"}


@pytest.mark.parametrize(
    ("version", "standard", "contrib"), [("2.6.0", False, True), ("2.7.0", True, False)]
)
def test_of_two_ops_with_one_name_the_flag_means_the_standard_one(
    version: str, standard: bool, contrib: bool
) -> None:
    """ai.onnx RotaryEmbedding came to HTP in the release in which the contrib one left it."""
    made = target("qnn", version)
    assert made.supports_rotary_embedding is standard
    legal = [r for r in made.rows_of("com.microsoft::RotaryEmbedding") if r.verdict == "legal"]
    assert bool(legal) is contrib


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("supports_gelu", True),
        ("supports_swish", True),
        ("supports_attention", False),
        ("supports_matmul_nbits", False),
        ("supports_tensor_scatter", False),
        ("supports_range", False),
        ("supports_an_op_that_is_not", False),
    ],
)
def test_a_flag_is_true_only_when_every_form_is_legal(flag: str, expected: bool) -> None:
    assert getattr(target("qnn@2.7.0"), flag) is expected


def test_other_attributes_are_no_flags() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = target("qnn").nothing_here


@pytest.mark.usefixtures("registry")
def test_a_third_party_registers_an_ep() -> None:
    rows = (row("MatMul", "any", Verdict.LEGAL),)
    ep = EP("acme", "an EP of ours", ("1.0",), lambda: rows)
    register(ep)
    assert ep in eps()
    assert target("acme").judge(PRODUCT).verdict is Verdict.LEGAL
    with pytest.raises(ValueError, match="registered already"):
        register(ep)
