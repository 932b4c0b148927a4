"""Trilu lowered, against ONNX Runtime's kernel and onnx's reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import target
from rewriter.lowering import lower
from tests import htp, ort
from tests.graphs import Builder

F32, F16, I64, BOOL = (ir.DataType[n] for n in ("FLOAT", "FLOAT16", "INT64", "BOOL"))
QNN = target("qnn", "2.7.0")


def node(
    dtype: ir.DataType = F32,
    k: int | None = None,
    shape: tuple[int, ...] = (2, 4, 6),
    **more: int,
) -> ir.Model:
    b = Builder()
    inputs = [b.input("x", dtype, shape)]
    if k is not None:
        inputs.append(b.const("k", np.array(k, np.int64)))
    y = b.op("Trilu", *inputs, name="y", **more)
    return b.model([(y, dtype, shape)])


def feeds(dtype: ir.DataType, shape: tuple[int, ...] = (2, 4, 6)) -> ort.Arrays:
    x = np.random.default_rng(1).integers(-9, 9, shape)
    return {"x": (x > 0) if dtype is BOOL else x.astype(dtype.numpy())}


@pytest.mark.parametrize("dtype", [F32, F16, I64, BOOL], ids=str)
@pytest.mark.parametrize("k", [None, 0, 2, -1, 9, -9])
@pytest.mark.parametrize("upper", [{}, {"upper": 0}, {"upper": 1}], ids=str)
def test_equals_the_kernel(dtype: ir.DataType, k: int | None, upper: dict[str, Any]) -> None:
    model, given = node(dtype, k, **upper), feeds(dtype)
    expected = ort.run(model, given)["y"]
    second: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, given)
    lower(model, QNN)
    actual = ort.run(model, given)["y"]
    assert np.array_equal(expected, actual)
    assert np.array_equal(second[0], actual)


def test_infinities_outside_the_triangle_do_not_reach_it() -> None:
    """A causal mask of -inf: 0 · -inf would be NaN."""
    model = node(shape=(4, 4), k=1)
    given = {"x": np.full((4, 4), -np.inf, np.float32)}
    lower(model, QNN)
    assert np.array_equal(ort.run(model, given)["y"], np.triu(given["x"], 1))


def test_no_mask_as_large_as_x_is_stored() -> None:
    model = node(shape=(512, 512))
    lower(model, QNN)
    stored = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    assert stored < 2 * 512 * 4 + 16


def run_time(dtype: ir.DataType) -> ir.Model:
    """A diagonal that is known only at run time."""
    model = node(dtype, k=1)
    value = model.graph.initializers.pop("k")
    value.const_value = None
    model.graph.inputs.append(value)
    return model


@pytest.mark.parametrize("k", [0, 2, -1, 9, -9])
def test_a_diagonal_known_only_at_run_time(k: int) -> None:
    model, given = run_time(F32), {**feeds(F32), "k": np.array(k, np.int64)}
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert np.array_equal(expected, ort.run(model, given)["y"])


@htp.needs_qnn
@pytest.mark.parametrize("dtype", [F32, I64], ids=str)
@pytest.mark.parametrize("moved", [False, True])
def test_placed_whole_on_htp(dtype: ir.DataType, moved: bool, tmp_path: Path) -> None:
    model = run_time(dtype) if moved else node(dtype, 1)
    given = {**feeds(dtype), "k": np.array(1, np.int64)}
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path, least=0)
