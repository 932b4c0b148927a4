"""The joined matrix, its page, the dead ends, and explanations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import capabilities
from capabilities import eps, target
from rewriter.cli import main
from rewriter.deadends import dead_ends
from rewriter.explanation import explain
from rewriter.matrix import matrices
from rewriter.refusals import refusals_of
from rewriter.rule import registry

PAGE = Path(capabilities.__file__).parent / "README.md"

PORTABLE = [
    "Attention",
    "RMSNormalization",
    "RotaryEmbedding",
    "TensorScatter",
    "com.microsoft::GatherBlockQuantized",
    "com.microsoft::GroupQueryAttention",
    "com.microsoft::MatMulNBits",
    "com.microsoft::MoE",
    "com.microsoft::QMoE",
    "com.microsoft::SkipSimplifiedLayerNormalization",
]
"""Ops that frontends and exporters write (design: the portable graph)."""


def test_the_page_equals_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """A change of behaviour is a diff: ``rewrite matrix --markdown > capabilities/README.md``."""
    assert main(["matrix", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")


def test_enough_forms_are_known() -> None:
    found = {one.ep: one for one in matrices(registry())}
    assert len(found["qnn"].lines) >= 60
    assert len(found["openvino"].lines) >= 40
    for one in found.values():
        cells = sum(one.count(v) for v in ("legal", "illegal", "wrong", "unknown"))
        assert cells == len(one.lines) * len(one.versions)


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--json", "--ep", "qnn"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["eps"]
    forms = {(f["op"], f["form"]): f["verdicts"] for f in one["forms"]}
    assert forms["RotaryEmbedding", "any"] == dict.fromkeys(
        ["2.3.0", "2.4.0", "2.5.0", "2.6.0"], "illegal"
    ) | {"2.7.0": "legal"}
    assert forms["com.microsoft::RotaryEmbedding", "any"]["2.6.0"] == "legal"
    assert forms["com.microsoft::RotaryEmbedding", "any"]["2.7.0"] == "illegal"


def _text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def test_rotary_embedding_changed_sides(capsys: pytest.CaptureFixture[str]) -> None:
    old = _text(capsys, "RotaryEmbedding", "--ep", "qnn@2.6.0")
    new = _text(capsys, "RotaryEmbedding", "--ep", "qnn@2.7.0")
    assert "illegal  [any]: since 2.7" in old
    assert "over versions [any]: legal 2.3.0-2.6.0, illegal 2.7.0" in old
    assert "illegal  [any]: the contrib op left HTP in 2.7" in new
    assert "measured 2.7.0: P/com.microsoft::RotaryEmbedding" in new
    assert "defined in rewriter.rules.lower.rotary_embedding:" in old


def test_quantized_weights_belong_to_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    text = _text(capsys, "MatMul", "--ep", "qnn@2.7.0")
    assert "HTP adds the zero point" in text
    assert "without a zero point the nibbles are read as unsigned" in text
    assert "fusion matmul_nbits" in text


def test_attention_on_openvino_differs_as_measured(capsys: pytest.CaptureFixture[str]) -> None:
    old = _text(capsys, "Attention", "--ep", "openvino@2026.2.1")
    new = _text(capsys, "Attention", "--ep", "openvino@2026.4.1")
    assert "wrong    [Q rank 3]" in old
    assert "wrong    [grouped heads]" in old
    assert "[Q rank 3]" not in new
    assert "wrong    [left_window_size>=0]" in new


def test_an_extrapolated_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = _text(capsys, "Attention", "--ep", "qnn@2.7.1")
    assert "(not measured: extrapolated from 2.7.0)" in text


@pytest.mark.parametrize("ep", ["qnn@9", "qnm", "qnn@2.2.0"])
def test_what_never_existed_is_bad_usage(ep: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "MatMul", "--ep", ep]) == 2
    assert "2.7.0" in (error := capsys.readouterr().err) or "qnn" in error


def test_an_unknown_op_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "matmul", "--ep", "qnn"]) == 2
    assert "did you mean MatMul?" in capsys.readouterr().err


def test_a_node_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "decoder" / "model.onnx"
    node = "layers.0/attn/mixed/GroupQueryAttention"
    dims = ["--dim=batch=1", "--dim=seq=1", "--dim=past=8"]
    text = _text(capsys, f"{fixture}:{node}", "--ep", "qnn@2.7.0", *dims)
    assert "past_key: float [1, 2, 8, 16]" in text
    assert "illegal [not option op_affinity]" in text
    assert "rule attention_primitives replaces it" in text
    assert main(["explain", f"{fixture}:nothing", "--ep", "qnn", *dims]) == 2


def test_refusals_are_read_from_the_rule() -> None:
    rule = registry().lowering("com.microsoft::GroupQueryAttention")[0]
    reasons = refusals_of(rule)
    assert "local_window_size=0 sees no key" in reasons
    assert "{heads} heads do not divide by {kv_heads}" in reasons


def test_explain_lists_what_a_rule_builds_and_where_that_is_illegal() -> None:
    (found,) = explain("com.microsoft::MatMulNBits", target("onnx-standard"))
    emits = {way.rule.name: dict(way.emits) for way in found.ways}
    assert emits["dequantize_and_matmul"]["DequantizeLinear"] == "legal"
    assert emits["flat_scales"]["com.microsoft::MatMulNBits[scales rank 1]"] == "illegal"


VERSIONS = [(ep.name, version) for ep in eps() for version in (ep.measured or ("",))]


@pytest.mark.parametrize(("ep", "version"), VERSIONS)
@pytest.mark.parametrize("op", PORTABLE)
def test_no_portable_op_ends_in_a_dead_end(ep: str, version: str, op: str) -> None:
    ends = [end for end in dead_ends(target(ep, version or None), registry()) if end.row.op == op]
    assert not ends


def test_refusals_of_functions_imported_by_name_are_read_too() -> None:
    """Those of ``blocks_of_integers``, which the rule's module imports from a shared one."""
    rule = next(rule for rule in registry() if rule.name == "float_product_of_integers")
    assert "the scales are not one per column" in refusals_of(rule)


@pytest.mark.parametrize("op", ["MatMulNBits", "com.microsoft::MatMulNBits"])
def test_the_matrix_of_one_op_counts_its_own_lines(
    op: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["matrix", "--op", op, "--ep", "qnn", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["eps"]
    assert {form["op"] for form in one["forms"]} == {"com.microsoft::MatMulNBits"}
    assert sum(one["cells"].values()) == len(one["forms"]) * len(one["versions"])


def test_an_op_without_rows_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--op", "Nothing"]) == 2
    assert "--op Nothing: no row of the table speaks of it" in capsys.readouterr().err
