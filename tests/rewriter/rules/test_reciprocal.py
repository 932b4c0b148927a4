"""Reciprocal lowered, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


def node(dtype: ir.DataType) -> ir.Model:
    b = Builder()
    y = b.op("Reciprocal", b.input("x", dtype, (1, 2, 8)), name="y")
    return b.model([(y, dtype, (1, 2, 8))])


def feeds(dtype: ir.DataType) -> ort.Arrays:
    x = np.random.default_rng(1).uniform(0.5, 9, (1, 2, 8)) * [1, -1, 1, -1, 1, -1, 1, -1]
    return {"x": x.astype(dtype.numpy())}


def test_equals_the_kernel() -> None:
    model, given = node(F32), feeds(F32)
    expected = ort.run(model, given)["y"]
    lower(model, toys.target("Reciprocal | any | illegal"))
    assert [n.op_type for n in model.graph] == ["Div"]
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_half_precision_before_qnn_2_7() -> None:
    model, given = node(F16), feeds(F16)
    exact = 1 / given["x"].astype(np.float32)
    lower(model, target("qnn", "2.4.0"))
    assert [n.op_type for n in model.graph] == ["Div"]
    assert ort.worst(exact, ort.run(model, given)["y"].astype(np.float32)) < 1e-3
    assert not lower(node(F16), target("qnn", "2.7.0")).changed


@htp.needs_qnn
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_placed_whole_on_htp(dtype: ir.DataType, tmp_path: Path) -> None:
    model, given = node(dtype), feeds(dtype)
    expected = {"y": 1 / given["x"].astype(np.float64)}
    lower(model, toys.target("Reciprocal | any | illegal"))
    htp.check(model, given, expected, tmp_path)
