"""The whole command on a small decoder: what it proves, and the exit codes of what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.rules.parts import attention, positions
from tests.decoders import Decoder, decoder

DECODE = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
PREFILL = ["--dim", "batch=1", "--dim", "seq=8", "--dim", "past=0"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A decoder with a sliding window, and separate 4-bit projections."""
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(window=3, packed=False)), path)
    return path


def _report(tmp_path: Path) -> dict[str, Any]:
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    graph: dict[str, Any] = json.loads(text)["graphs"][0]
    return graph


def _run(model: Path, *more: str) -> int:
    folder = model.parent
    report = ("--report", str(folder / "report.json"))
    return main([str(model), "-o", str(folder / "out"), *report, *more])


@pytest.mark.parametrize("weights", ["fp32", "int4", "int4_qdq"])
@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("dims", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_good(weights: str, window: int, dims: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ir.save(decoder(Decoder(weights=weights, window=window)), path)
    assert _run(path, "--ep", "qnn", *dims, "--parity", "device") == 0
    graph = _report(tmp_path)
    assert graph["placement"]["on_cpu"] == 0
    assert graph["placement"]["partitions"] == 1
    assert max(o["max_std"] for o in graph["parity"]["model"]["outputs"]) < 1e-5
    assert graph["parity"]["device"]["ok"]


def test_a_wrong_rule_is_exit_4_and_writes_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "MASKED", -0.5)
    assert _run(model, "--ep", "qnn", *DECODE, "--no-place") == 4
    assert not (model.parent / "out").exists()
    parity = _report(model.parent)["parity"]
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
    assert _run(model, "--ep", "qnn", *DECODE, "--no-place") == 4


def test_a_table_that_the_runtime_contradicts_is_exit_5(model: Path) -> None:
    legal = ["--legal", "com.microsoft::SkipSimplifiedLayerNormalization"]
    assert _run(model, "--ep", "qnn", *DECODE, *legal, "--parity", "none") == 5
    placement = _report(model.parent)["placement"]
    assert placement["cpu_ops"] == {"com.microsoft::SkipSimplifiedLayerNormalization": 4}
    assert set(placement["reasons"]) == {name for name, _ in placement["cpu_nodes"]}


def test_stuck_is_exit_3_and_names_every_refusal(model: Path) -> None:
    words = ["--ep", "qnn", *DECODE, "--disable", "add_and_norm"]
    assert _run(model, *words) == 3
    assert not (model.parent / "out").exists()
    stuck = _report(model.parent)["stuck"]
    assert [node["op"] for node in stuck] == ["com.microsoft::SkipSimplifiedLayerNormalization"] * 4
    assert stuck[0]["tried"] == [{"rule": "add_and_norm", "refused": "disabled by you"}]
    assert _run(model, *words, "--allow-stuck") == 0
    assert (model.parent / "out" / "model.onnx").is_file()


def test_unknown_is_good_once_the_runtime_has_placed_it(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    header = "op\tform\tverdict\tversions\twhy\tevidence\n"
    rows.write_text(header + "Sigmoid\tany\tlegal\t*\t\tdeclared:me\n", encoding="utf-8")
    assert _run(model, "--ep", "qnn", *DECODE, "--rows", str(rows), "--parity", "none") == 0


def test_the_report_names_the_oracle(model: Path) -> None:
    assert _run(model, "--ep", "onnx-standard", *DECODE) == 0
    found = _report(model.parent)["parity"]["model"]
    assert "accuracy_level removed" in found["settings"]
    assert 0 < found["default_drift"] < 1e-2
    assert len(found["scenarios"]) == 3


def test_a_provider_option_changes_table_and_session(model: Path, tmp_path: Path) -> None:
    """GroupQueryAttention without a window is on HTP in 2.7 once op_affinity sends it there."""
    path = tmp_path / "plain.onnx"
    ir.save(decoder(Decoder(weights="fp32", layers=1)), path)
    affinity = tmp_path / "affinity.json"
    affinity.write_text('{"op_type": {"GroupQueryAttention": "htp"}}', encoding="utf-8")
    words = ["--ep", "qnn@2.7.0", *DECODE, "--option", f"op_affinity={affinity}"]
    assert _run(path, *words, "--parity", "none") == 0
    graph = _report(tmp_path)
    assert graph["ops_after"]["com.microsoft::GroupQueryAttention"] == 1
    assert graph["placement"]["on_cpu"] == 0
    assert _run(model, "--ep", "qnn", *DECODE, "--option", "soc_model", "--no-place") == 2
