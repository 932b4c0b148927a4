"""Float16 to bool, which left HTP in onnxruntime-qnn 2.7."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import ort
from tests.graphs import Builder

F16, BOOL = ir.DataType.FLOAT16, ir.DataType.BOOL


def cast(dtype: ir.DataType = F16) -> ir.Model:
    b = Builder()
    x = b.input("x", dtype, (6,))
    return b.model([(b.op("Cast", x, name="y", to=9), BOOL, (6,))])


def test_float_is_true_where_it_is_not_zero() -> None:
    model = cast()
    given = {"x": np.array([0, -0.0, 1e-7, -3, np.inf, np.nan], np.float16)}
    expected = ort.run(model, given)["y"]
    report = lower(model, target("qnn", "2.7.0"))
    assert report.sites() == {("is_not_zero", "Cast"): 1}
    assert [n.op_type for n in model.graph] == ["Equal", "Not"]
    assert np.array_equal(expected, ort.run(model, given)["y"])
    assert expected.tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize(("dtype", "version"), [(F16, "2.6.0"), (ir.DataType.FLOAT, "2.7.0")])
def test_it_stays_where_it_is_legal(dtype: ir.DataType, version: str) -> None:
    assert not lower(cast(dtype), target("qnn", version)).changed


def test_a_stored_bfloat16_is_stored_as_float32() -> None:
    """Every bfloat16 number is a float32; nothing is computed any more."""
    stored = ir.tensor(np.array([[1.5, -3e38], [1e-40, 0]], ml_dtypes.bfloat16), name="w")
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (2, 2))
    wide = b.op("Cast", b.const("w", stored), name="wide", to=1)
    model = b.model([(b.op("Add", x, wide, name="y"), ir.DataType.FLOAT, (2, 2))])
    given = {"x": np.zeros((2, 2), np.float32)}
    expected = ort.run(model, given)["y"]
    report = lower(model, target("qnn", "2.7.0"))
    assert report.sites() == {("stored_as_float32", "Cast"): 1}
    assert [n.op_type for n in model.graph] == ["Add"]
    assert np.array_equal(expected, ort.run(model, given)["y"])
    assert not lower(model, target("qnn", "2.7.0")).changed
