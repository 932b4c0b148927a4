"""Options of quantization: what goes together, and what they ask for."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from tests.command_line import FAST, Capture, failure, report_of, rewritten
from tests.rewriter.activations.test_step import layer


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--calibrate", "auto"], "--calibrate is for --activations; say a16 or a8"),
        (["--method", "rtn"], "--method is for --quantize; say int4 or int8"),
        (["--max-error", "0.1"], "--max-error is for --quantize"),
        (["--max-error", "2"], "'2' is no number between 0 and 1"),
        (["--quantize", "int4", "--method", "kquant", "--grain", "channel"], "kquant"),
        (["--activations", "a16", "--calibrate", "missing.txt"], "there is no such file"),
    ],
)
def test_bad_usage(words: list[str], why: str, tmp_path: Path, capsys: Capture) -> None:
    ir.save(layer(), tmp_path / "model.onnx")
    out = ["-o", str(tmp_path / "out")]
    given = [str(tmp_path / "model.onnx"), "--ep", "qnn@2.7.0", *out, *FAST, *words]
    assert why in failure(capsys, *given)


def test_the_report_has_everything(tmp_path: Path) -> None:
    ir.save(layer(points=7), tmp_path / "model.onnx")
    words = ["--ep", "qnn@2.7.0", "--activations", "a8", "--parity", "model", "--no-place"]
    assert rewritten(tmp_path / "model.onnx", *words) == 0
    graph = report_of(tmp_path)
    made = graph["activations"]
    assert (made["bits"], made["calibrated"]) == (8, "random inputs, NOT DATA")
    assert (made["divergence"], made["floats"]) == (None, {})
    assert [one["node"] for one in made["kept"]] == ["product/MatMulNBits"]
    assert graph["parity"]["model"]["ok"]
    assert graph["parity"]["device_quantized"] is None
    assert graph["ops_after"]["QuantizeLinear"] > 0
    assert any("NOT DATA" in note for note in graph["notes"])


def test_a_float_weight_is_made_an_integer_first(tmp_path: Path) -> None:
    from tests.graphs import Builder

    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 4, 64))
    y = b.linear(x, "y", 64, 32, "fp32")
    ir.save(b.model([(y, ir.DataType.FLOAT, (1, 4, 32))]), tmp_path / "model.onnx")
    words = ["--ep", "qnn@2.7.0", "--activations", "a16", "--quantize", "int4", *FAST]
    assert rewritten(tmp_path / "model.onnx", *words) == 0
    assert report_of(tmp_path)["activations"]["weights"] == {"int4 in blocks of 32": 1}
