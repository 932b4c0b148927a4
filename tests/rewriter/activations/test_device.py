"""A form that HTP reads in another way: refused with the evidence, and seen when it is forced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from rewriter import packing
from rewriter.activations.device import steps_of
from rewriter.cli import main
from tests.command_line import report_of, rewritten
from tests.graphs import Builder
from tests.htp import needs_qnn

F32 = ir.DataType.FLOAT
K, N, BLOCK = 64, 32, 32
FORCED = ("--ep", "qnn@2.7.0", "--legal", "DequantizeLinear[blocked]", "--parity", "device")


def product(zero: int) -> ir.Model:
    """X·W with 16-bit activations and uint4 weights in blocks."""
    b, rng = Builder(), np.random.default_rng(0)
    codes = rng.integers(0, 16, (K, N)).astype(np.uint8)
    points = np.full((K // BLOCK, N), zero, np.uint8)
    scales = rng.uniform(0.02, 0.08, (K // BLOCK, N)).astype(np.float32)
    weight = b.op(
        "DequantizeLinear",
        b.const("codes", packing.integers(codes, ir.DataType.UINT4)),
        b.const("scales", scales),
        b.const("points", packing.integers(points, ir.DataType.UINT4)),
        name="weight", axis=0, block_size=BLOCK,
    )  # fmt: skip
    x = b.input("x", F32, (1, 4, K))
    y = b.op("MatMul", pair(b, x, 8, "read"), weight, name="y")
    return b.model([(pair(b, y, 64, "found"), F32, (1, 4, N))])


def pair(b: Builder, x: ir.Value, width: float, name: str) -> ir.Value:
    given = [b.const(f"{name}_step", np.float32(width / 65535)),
             b.const(f"{name}_zero", np.uint16(32768))]  # fmt: skip
    codes = b.op("QuantizeLinear", x, *given, name=f"{name}_codes")
    return b.op("DequantizeLinear", codes, *given, name=name)


def test_the_step_of_an_output_is_the_scale_before_it() -> None:
    assert steps_of(product(8)) == {"found": pytest.approx(64 / 65535)}


def test_a_plan_refuses_it_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ir.save(product(8), tmp_path / "model.onnx")
    model, ep = str(tmp_path / "model.onnx"), ("--ep", "qnn@2.7.0")
    assert main(["explain", f"{model}:weight/DequantizeLinear", *ep]) == 0
    said = capsys.readouterr().out
    assert "HTP adds the zero point, scale * (w + zp)" in said
    assert "measured 2.7.0: P/DequantizeLinear|" in said
    assert main(["plan", model, *ep]) == 0
    assert "com.microsoft::MatMulNBits 0" in capsys.readouterr().out  # what takes its place


@needs_qnn
def test_forced_it_is_seen_by_the_device_parity(tmp_path: Path) -> None:
    ir.save(product(8), tmp_path / "model.onnx")
    assert rewritten(tmp_path / "model.onnx", *FORCED) == 4
    parity = report_of(tmp_path)["parity"]
    assert parity["model"]["ok"]
    assert not parity["device"]["ok"]
    assert parity["device"]["outputs"][0]["max_std"] > 1
