"""Integers on HTP: a Gather that writes a graph output, and ReduceMax before 2.7."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import htp, ort
from tests.graphs import Builder

QNN = target("qnn", "2.7.0")
I64, I32 = ir.DataType.INT64, ir.DataType.INT32
INDICES = [np.array(1), np.array([1, 0]), np.array([[1, 0], [2, 2]])]


def gather(indices: np.ndarray, source: str, *, stored: bool) -> tuple[ir.Model, ort.Arrays]:
    b = Builder()
    x = b.input("x", I64, (4, 3, 2))
    table = b.const("table", np.arange(24).reshape(4, 3, 2))
    data = {"input": x, "const": table, "inside": b.op("Add", x, table, name="sum")}[source]
    at = b.const("at", indices) if stored else b.input("at", I64, indices.shape)
    y = b.op("Gather", data, at, name="y", axis=1)
    given = {"x": b.rng.integers(-99, 99, (4, 3, 2)), "at": indices}
    return b.model([(y, I64, (4, *indices.shape, 2))]), given


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("source", ["input", "const", "inside"])
@pytest.mark.parametrize("indices", INDICES[:2], ids=["scalar", "row"])
@htp.needs_qnn
def test_gather_to_an_int64_output(
    indices: np.ndarray, source: str, stored: bool, tmp_path: Path
) -> None:
    model, given = gather(indices, source, stored=stored)
    expected = ort.run(model, given)
    fired = lower(model, QNN).sites()
    assert bool(fired) == (source != "input" or indices.ndim == 0)
    assert ort.worst(expected["y"], ort.run(model, given)["y"]) == pytest.approx(0)
    htp.check(model, given, expected, tmp_path, least=0)


@htp.needs_qnn
def test_one_element(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", I64, (5,))
    total = b.op("Add", x, b.const("one", np.array(1)), name="sum")
    y = b.op("Gather", total, b.const("at", np.array(2)), name="y")
    model, given = b.model([(y, I64, ())]), {"x": np.arange(5) * 3}
    expected = ort.run(model, given)
    assert lower(model, QNN).sites() == {("gather_and_reshape", "Gather"): 1}
    assert ort.run(model, given)["y"] == expected["y"] == 7
    htp.check(model, given, expected, tmp_path, least=0)


def test_indices_of_any_rank() -> None:
    model, given = gather(INDICES[2], "inside", stored=False)
    expected = ort.run(model, given)["y"]
    assert lower(model, QNN).sites() == {("gather_and_reshape", "Gather"): 1}
    assert ort.worst(expected, ort.run(model, given)["y"]) == pytest.approx(0)


@pytest.mark.parametrize("dtype", [I32, I64])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("opset", "axes"), [(17, [1]), (18, [-1, 0]), (18, None)])
def test_reduce_max(dtype: ir.DataType, keepdims: int, opset: int, axes: list[int] | None) -> None:
    b = Builder()
    x = b.input("x", dtype, (2, 3, 4))
    numbers = np.random.default_rng(2).integers(-99, 99, (2, 3, 4)).astype(dtype.numpy())
    lowest = np.iinfo(dtype.numpy()).min
    numbers[0, 0], numbers[1, 2, 0] = lowest, -lowest - 1
    exact = numbers.max(tuple(axes) if axes else None, keepdims=bool(keepdims))
    stored = [b.const("axes", np.array(axes))] if axes and opset >= 18 else []
    attributes = {"axes": axes} if axes and opset < 18 else {}
    y = b.op("ReduceMax", x, *stored, name="y", keepdims=keepdims, **attributes)
    model = b.model([(y, dtype, exact.shape)], opset)
    report = lower(model, target("qnn", "2.6.0"))
    assert report.sites() == {("by_reduce_min", "ReduceMax"): 1}
    assert np.array_equal(ort.run(model, {"x": numbers})["y"], exact)


@htp.needs_qnn
def test_mish_is_one_partition(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (2, 3, 8))
    two = b.const("two", np.float32(2))
    y = b.op("Mish", b.op("Mul", x, two, name="before"), name="mish")
    model = b.model([(b.op("Mul", y, two, name="y"), ir.DataType.FLOAT, (2, 3, 8))])
    given = {"x": np.linspace(-12, 12, 48, dtype=np.float32).reshape(2, 3, 8)}
    expected = ort.run(model, given)
    assert lower(model, QNN).sites() == {("mish_primitives", "Mish"): 1}
    assert ort.worst(expected["y"], ort.run(model, given)["y"]) < 1e-6
    htp.check(model, given, expected, tmp_path)
