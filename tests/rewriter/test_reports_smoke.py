"""The smoke set of the public reports (../shared/reports.md, part 3), by the command line.

Inputs and outputs stay, nothing unsupported is left, ONNX's checker and ONNX Runtime take the
result, it is the same function, a second run changes nothing, and the weights do not grow. D41 is
of the engine alone (test_laws_of_*.py), D50 of GGUF files (tests/frontends/gguf).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.cli import main
from tests import ort
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
MS = "com.microsoft::"


def _d02(b: Builder) -> ir.Value:
    q, k, v = (b.input(n, F32, (1, 2, s, 8)) for n, s in (("q", 2), ("k", 4), ("v", 4)))
    length = b.const("length", np.array([4]))
    return b.op("Attention", q, k, v, None, None, None, length, name="y", is_causal=1)


def _d03(b: Builder) -> ir.Value:
    q, k, v = (b.input(n, F32, (1, 1, s, 1)) for n, s in (("q", 1), ("k", 2), ("v", 2)))
    mask = b.const("mask", np.array([[True, False]]))
    return b.op("Attention", q, k, v, mask, name="y", softcap=2.0, scale=1.0)


def _d04(b: Builder) -> ir.Value:
    q, k, v = (b.input(n, F32, (1, heads, 3, 8)) for n, heads in (("q", 4), ("k", 2), ("v", 2)))
    return b.op("Attention", q, k, v, name="y")


def _d11(b: Builder) -> ir.Value:
    x, ids = b.input("x", F32, (1, 2, 3, 4)), b.input("position_ids", I64, (1, 3))
    tables = [b.const(n, of(np.arange(16).reshape(8, 2)).astype(np.float32))
              for n, of in (("cos", np.cos), ("sin", np.sin))]  # fmt: skip
    return b.op(f"{MS}RotaryEmbedding", x, ids, *tables, name="y", interleaved=1)


def _d24(b: Builder) -> ir.Value:
    ids = b.input("input_ids", I64, (3,))
    codes = b.const("codes", np.full((2, 16), 0xAA, np.uint8))
    scales = b.const("scales", np.array([[0.5], [0.25]], np.float32))
    return b.op(f"{MS}GatherBlockQuantized", codes, ids, scales, name="y", bits=4, block_size=32,
                gather_axis=0, quantize_axis=1)  # fmt: skip


def _d25(b: Builder) -> ir.Value:
    x = b.input("x", F32, (1, 1, 32))
    codes = b.const("codes", np.full((1, 1, 16), 0xAA, np.uint8))
    scales = b.const("scales", np.full((1, 1), 0.5, np.float32))
    sizes = {"K": 32, "N": 1, "bits": 4, "block_size": 32}
    return b.op(f"{MS}MatMulNBits", x, codes, scales, name="y", **sizes)


def _d33(b: Builder) -> ir.Value:
    x, skip = (b.input(n, F32, (1, 3, 8)) for n in ("x", "skip"))
    gains = [b.const(n, b.rng.standard_normal(8).astype(np.float32)) for n in ("gamma", "bias")]
    op = f"{MS}SkipSimplifiedLayerNormalization"
    y, *_, total = b.node(op, [x, skip, *gains], ["norm", "", "", "sum"])
    return b.op("Mul", y, total, name="y")


def _d42(b: Builder) -> ir.Value:
    """Others drop it, and call the input y."""
    x = b.input("x", F32, (1, 2, 4))
    return b.op("Identity", x, name="y")


def _d44(b: Builder) -> ir.Value:
    x, updates = b.input("x", F32, (4, 3)), b.input("updates", F32, (2, 3))
    at = b.const("at", np.array([[1], [1]]))
    return b.op("ScatterND", x, at, updates, name="y", reduction="add")


QNN, STANDARD = "qnn@2.4.0", "onnx-standard"
CASES: dict[str, tuple[Callable[[Builder], ir.Value], tuple[int, ...], str, str]] = {
    "d02": (_d02, (1, 2, 2, 8), QNN, "Attention"),
    "d03": (_d03, (1, 1, 1, 1), QNN, "Attention"),
    "d04": (_d04, (1, 4, 3, 8), QNN, "Attention"),
    "d11": (_d11, (1, 2, 3, 4), STANDARD, f"{MS}RotaryEmbedding"),
    "d24": (_d24, (3, 32), STANDARD, f"{MS}GatherBlockQuantized"),
    "d25": (_d25, (1, 1, 1), STANDARD, f"{MS}MatMulNBits"),
    "d33": (_d33, (1, 3, 8), STANDARD, f"{MS}SkipSimplifiedLayerNormalization"),
    "d42": (_d42, (1, 2, 4), QNN, ""),
    "d44": (_d44, (4, 3), STANDARD, ""),
}


def _run(model: Path, out: Path, ep: str) -> dict[str, Any]:
    """The report of the only graph, with the bytes of the weights."""
    report = out.with_suffix(".json")
    words = [str(model), "--ep", ep, "-o", str(out), "--parity", "none", "--no-place"]
    assert main([*words, "--report", str(report)]) == 0
    found = json.loads(report.read_text())
    (graph,) = found["graphs"]
    assert graph["stuck"] == graph["unknown"] == []
    return {**graph, **found["bytes"]}


@pytest.mark.parametrize("case", CASES)
def test_smoke(case: str, tmp_path: Path) -> None:
    build, shape, ep, op = CASES[case]
    b = Builder()
    source, out = tmp_path / "model.onnx", tmp_path / "out"
    ir.save(b.model([(build(b), F32, shape)], 24), source)
    made = _run(source, out, ep)
    assert made["ops_before"].get(op, 0) == int(bool(op))
    assert op not in made["ops_after"]
    assert bool(made["rules"]) is bool(op)
    assert made["weights_after"] <= made["weights_before"] + 256
    before, after = onnx.load(source), onnx.load(out / "model.onnx")
    onnx.checker.check_model(out / "model.onnx", full_check=True)
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    rng = np.random.default_rng(1)
    given = {
        str(value.name): rng.integers(0, 2, value.shape.numpy())
        if value.dtype == I64
        else rng.standard_normal(value.shape.numpy()).astype(np.float32)
        for value in b.inputs
        if value.shape is not None
    }
    expected, found = (ort.run(ir.load(p), given)["y"] for p in (source, out / "model.onnx"))
    assert ort.worst(expected, found) < 2e-6
    again = _run(out / "model.onnx", tmp_path / "again", ep)
    assert again["rules"] == []
    assert again["ops_after"] == made["ops_after"]
