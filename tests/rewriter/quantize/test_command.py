"""``rewrite --quantize``: what is written, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.cli import main
from tests.decoders import Decoder, decoder
from tests.rewriter.quantize.models import drawn, product

DIMS = ["--dim=batch=1", "--dim=seq=1", "--dim=past=8"]


def test_a_decoder_within_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, report = tmp_path / "m.onnx", tmp_path / "r.json"
    ir.save(decoder(Decoder(packed=False, weights="fp32")), file, external_data="m.data")
    words = [str(file), "--ep", "ort-cpu", *DIMS, "-o", str(tmp_path / "o"), "--no-place"]
    words += ["--quantize", "int4", "--max-error", "0.088", "--report", str(report)]
    assert main(words) == 0
    told = json.loads(report.read_text(encoding="utf-8"))
    errors = {row["weight"]: row for row in told["weight_errors"]}
    bits = {row["bits"] for row in errors.values()}
    assert bits == {0, 4, 8}  # the table of embeddings was not asked for
    assert all(row["rms"] <= 0.088 for row in errors.values())
    assert all(row["rms4"] > 0.088 for row in errors.values() if row["bits"] == 8)
    assert all(row["measured"] for row in errors.values() if row["bits"])
    (graph,) = told["graphs"]
    assert graph["ops_after"]["com.microsoft::MatMulNBits"] == 15
    assert graph["parity"]["model"]["ok"]
    assert graph["traffic"]["tokens"] == 1
    packed = sum(row["bytes"] for row in graph["quantized"])
    assert 0 < packed < graph["traffic"]["weights"] < graph["traffic"]["bytes_per_token"]
    said = " ".join(capsys.readouterr().out.split())
    assert "quantized to 4 bits, blocks of 32, rtn: largest error" in said
    assert "weighted by their measured inputs" in said
    assert "8 bits, as 4 are off by too much" in said
    assert "1 stay float (embed.weight)" in said
    assert "bytes for a token" in said


def test_an_option_that_does_not_fit_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.onnx"
    ir.save(product(drawn(64, 16)), file)
    words = [str(file), "--ep", "ort-cpu", "-o", str(tmp_path / "o")]
    assert main([*words, "--quantize", "int4", "--method", "kquant", "--grain", "channel"]) == 2
    assert "kquant searches blocks" in capsys.readouterr().err
    assert main([*words, "--max-error", "0.1"]) == 2
    assert "--max-error is for --quantize" in capsys.readouterr().err
