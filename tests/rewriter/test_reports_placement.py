"""Public reports of this field on what stays on the CPU (../shared/reports.md, D55)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Verdict, target
from rewriter.cli import main
from rewriter.lowering import lower
from tests import ort
from tests.graphs import Builder

F32, I32, I64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
QNN = target("qnn", "2.4.0")
Built = tuple[ir.Value, ir.DataType, tuple[int, ...]]


def _attention(b: Builder) -> Built:
    qkv = [b.input(name, F32, (1, 2, 4, 8)) for name in "qkv"]
    return b.op("Attention", *qkv, name="y", is_causal=1), F32, (1, 2, 4, 8)


def _rotary(b: Builder) -> Built:
    x, tables = b.input("x", F32, (1, 2, 4, 8)), [b.input(n, F32, (1, 4, 4)) for n in ("c", "s")]
    return b.op("RotaryEmbedding", x, *tables, name="y"), F32, (1, 2, 4, 8)


def _scatter(b: Builder) -> Built:
    cache, update = b.input("cache", F32, (1, 2, 8, 4)), b.input("update", F32, (1, 2, 3, 4))
    at = b.input("at", I64, (1,))
    return b.op("TensorScatter", cache, update, at, name="y"), F32, (1, 2, 8, 4)


def _tile(b: Builder) -> Built:
    x = b.input("x", I32, (1, 1, 2, 1, 3))
    times = b.const("times", np.array([1, 1, 1, 4, 1]))
    return b.op("Tile", x, times, name="y"), I32, (1, 1, 2, 4, 3)


def _range(b: Builder) -> Built:
    start = b.input("start", I64, ())
    end = b.op("Add", start, b.const("four", np.array(4)), name="end")
    return b.op("Range", start, end, b.const("one", np.array(1)), name="y"), I64, (4,)


def _blocks(b: Builder) -> Built:
    x = b.input("x", F32, (1, 4, 64))
    return b.linear(x, "y", 64, 32, "int4_qdq"), F32, (1, 4, 32)


FORCED = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "TensorScatter": _scatter,
    "Tile": _tile,
    "Range": _range,
    "DequantizeLinear": _blocks,
}


@pytest.mark.parametrize("op", FORCED)
def test_d55_what_was_forced_to_the_cpu_is_replaced(op: str) -> None:
    b = Builder()
    built = FORCED[op](b)
    model = b.model([built], 24)
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {"at": np.array([5]), "start": np.array(7)}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        if value.name not in given:
            drawn = 3 * rng.standard_normal(value.shape.numpy())
            given[str(value.name)] = drawn.astype(value.dtype.numpy())
    expected = ort.run(model, given)["y"]
    report = lower(model, QNN)
    assert report.ops_before[op] == 1
    assert report.ops_after[op] == 0
    assert not report.stuck
    assert not report.unknown
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize("op", [*FORCED, "com.microsoft::GroupQueryAttention"])
def test_d55_a_verdict_has_a_source_and_versions(op: str) -> None:
    """So that "on the CPU at 2.4.0" is a row that another version may contradict."""
    rows = [row for row in QNN.rows_of(op) if row.verdict is not Verdict.LEGAL]
    assert rows
    for row in rows:
        assert row.why
        assert row.evidence
        assert row.versions.text


def test_d55_what_is_left_is_listed_by_the_names_of_its_nodes(tmp_path: Path) -> None:
    """A step known only at run time has no replacement; --allow-stuck keeps node and list."""
    b = Builder()
    bounds = [b.input(name, I64, ()) for name in ("start", "limit", "step")]
    y = b.op("Range", *bounds, name="positions")
    ir.save(b.model([(y, I64, (8,))]), tmp_path / "model.onnx")
    report, out = tmp_path / "report.json", tmp_path / "out"
    words = [str(tmp_path / "model.onnx"), "--ep", "qnn@2.4.0", "--parity=none", "--no-place"]
    words += ["-o", str(out), "--report", str(report)]
    for more, code in (([], 3), (["--allow-stuck"], 0)):
        assert main([*words, *more]) == code
        (stuck,) = json.loads(report.read_text())["graphs"][0]["stuck"]
        assert (stuck["op"], stuck["node"]) == ("Range", "positions/Range")
        assert stuck["why"] == "a range known only at run time stays on the CPU"
        assert stuck["tried"][0]["refused"] == "delta is not a constant"
        assert out.exists() is (code == 0)
