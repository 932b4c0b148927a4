"""The whole command on a small decoder: what it proves, and the exit codes of what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.rules.parts import attention, positions
from tests.command_line import DIMS, report_of, rewritten
from tests.decoders import Decoder, decoder

PREFILL = ["--dim", "batch=1", "--dim", "seq=8", "--dim", "past=0"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A decoder with a sliding window, and separate 4-bit projections."""
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(window=3, packed=False)), path)
    return path


@pytest.mark.parametrize("weights", ["fp32", "int4", "int4_qdq"])
@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("dims", [DIMS, PREFILL], ids=["decode", "prefill"])
def test_good(weights: str, window: int, dims: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(weights=weights, window=window)), path)
    assert rewritten(path, "--ep", "qnn", *dims, "--parity", "device") == 0
    graph = report_of(tmp_path)
    assert graph["placement"]["on_cpu"] == 0
    assert graph["placement"]["partitions"] == 1
    assert max(o["max_std"] for o in graph["parity"]["model"]["outputs"]) < 1e-5
    assert graph["parity"]["device"]["ok"]


def test_a_wrong_rule_is_exit_4_and_writes_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "MASKED", -0.5)
    assert rewritten(model, "--ep", "qnn", *DIMS, "--no-place") == 4
    assert not (model.parent / "out").exists()
    parity = report_of(model.parent)["parity"]
    bad = [site for site in parity["sites"] if not site["ok"]]
    assert [site["rule"] for site in bad] == ["attention_primitives"]
    assert not parity["model"]["ok"]


def test_a_scale_off_by_one_percent_is_seen(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Device noise hides it (lowering.md); the comparison on the CPU must not."""
    right = attention.scores

    def scores(*arguments: Any) -> ir.Value:
        op, query, key, scale = arguments
        return right(op, query, key, scale * 1.01)

    monkeypatch.setattr(attention, "scores", scores)
    assert rewritten(model, "--ep", "qnn", *DIMS, "--no-place") == 4


def test_a_table_that_the_runtime_contradicts_is_exit_5(model: Path) -> None:
    legal = ["--legal", "com.microsoft::SkipSimplifiedLayerNormalization"]
    assert rewritten(model, "--ep", "qnn", *DIMS, *legal, "--parity", "none") == 5
    placement = report_of(model.parent)["placement"]
    assert placement["cpu_ops"] == {"com.microsoft::SkipSimplifiedLayerNormalization": 4}
    assert set(placement["reasons"]) == {name for name, _ in placement["cpu_nodes"]}


def test_stuck_is_exit_3_and_names_every_refusal(model: Path) -> None:
    words = ["--ep", "qnn", *DIMS, "--disable", "add_and_norm"]
    assert rewritten(model, *words) == 3
    assert not (model.parent / "out").exists()
    stuck = report_of(model.parent)["stuck"]
    assert [node["op"] for node in stuck] == ["com.microsoft::SkipSimplifiedLayerNormalization"] * 4
    assert stuck[0]["tried"] == [{"rule": "add_and_norm", "refused": "disabled by you"}]
    assert rewritten(model, *words, "--allow-stuck") == 0
    assert (model.parent / "out" / "model.onnx").is_file()


def test_unknown_is_good_once_the_runtime_has_placed_it(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    header = "op\tform\tverdict\tversions\twhy\tevidence\n"
    rows.write_text(header + "Sigmoid\tany\tlegal\t*\t\tdeclared:me\n", encoding="utf-8")
    assert rewritten(model, "--ep", "qnn", *DIMS, "--rows", str(rows), "--parity", "none") == 0


def test_the_report_names_the_oracle(model: Path) -> None:
    assert rewritten(model, "--ep", "onnx-standard", *DIMS) == 0
    found = report_of(model.parent)["parity"]["model"]
    assert "accuracy_level removed" in found["settings"]
    assert 0 < found["default_drift"] < 1e-2
    assert len(found["scenarios"]) == 3


def test_a_provider_option_changes_table_and_session(model: Path, tmp_path: Path) -> None:
    """GroupQueryAttention without a window is on HTP in 2.7 once op_affinity sends it there."""
    path = tmp_path / "plain.onnx"
    ir.save(decoder(Decoder(weights="fp32", layers=1)), path)
    affinity = tmp_path / "affinity.json"
    affinity.write_text('{"op_type": {"GroupQueryAttention": "htp"}}', encoding="utf-8")
    words = ["--ep", "qnn@2.7.0", *DIMS, "--option", f"op_affinity={affinity}"]
    assert rewritten(path, *words, "--parity", "none") == 0
    graph = report_of(tmp_path)
    assert graph["ops_after"]["com.microsoft::GroupQueryAttention"] == 1
    assert graph["placement"]["on_cpu"] == 0
    assert rewritten(model, "--ep", "qnn", *DIMS, "--option", "soc_model", "--no-place") == 2
