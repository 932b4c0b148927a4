"""Written-out RMS norms are raised to one op when, and only when, every condition holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from rewriter.placement import place
from tests import ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")


def norm(
    *, square: str = "Pow", inverse: str = "Reciprocal", weight_first: bool = True,
    dtype: ir.DataType = F32, opset: int = 22, exponent: float = 2.0, axis: int = -1,
    numerator: float = 1.0, keepdims: int = 1, width: int = 8,
) -> ir.Model:  # fmt: skip
    b = Builder()
    x = source = b.input("x", dtype, (2, 3, 8))
    half = dtype == F16
    if half:
        x = b.op("Cast", source, name="wide", to=1)
    two = b.const("two", np.float32(exponent))
    squares = b.op("Pow", x, two, name="squares") if square == "Pow" else b.op(
        "Mul", x, x, name="squares")  # fmt: skip
    axes = b.const("axes", np.array([axis]))
    mean = b.op("ReduceMean", squares, axes, name="mean", keepdims=keepdims)
    root = b.op("Sqrt", b.op("Add", mean, b.const("eps", np.float32(1e-3)), name="sum"), name="r")
    if inverse == "Reciprocal":
        normed = b.op("Mul", x, b.op("Reciprocal", root, name="inverse"), name="normed")
    elif inverse == "1/":
        one = b.const("one", np.float32(numerator))
        normed = b.op("Mul", x, b.op("Div", one, root, name="inverse"), name="normed")
    else:
        normed = b.op("Div", x, root, name="normed")
    if half:
        normed = b.op("Cast", normed, name="narrow", to=10)
    w = b.const("w", b.rng.standard_normal((width,)).astype(dtype.numpy()))
    y = b.op("Mul", *((w, normed) if weight_first else (normed, w)), name="y")
    return b.model([(y, dtype, (2, 3, 8))], opset)


def given(dtype: ir.DataType = F32) -> ort.Arrays:
    x = np.random.default_rng(1).standard_normal((2, 3, 8))
    return {"x": x.astype(dtype.numpy())}


@pytest.mark.parametrize("weight_first", [False, True], ids=["n*w", "w*n"])
@pytest.mark.parametrize("inverse", ["Reciprocal", "1/", "Div"])
@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize(("opset", "op"), [(18, "SimplifiedLayerNormalization"),
                                           (23, "RMSNormalization")])  # fmt: skip
def test_raised(opset: int, op: str, square: str, inverse: str, weight_first: bool) -> None:
    model = norm(square=square, inverse=inverse, weight_first=weight_first, opset=opset)
    expected = ort.run(model, given())["y"]
    lower(model, QNN)
    assert [n.op_type for n in model.graph] == [op]
    assert ort.worst(expected, ort.run(model, given())["y"]) < 1e-6


def test_a_norm_that_is_widened_and_narrowed_is_one_op_of_halves() -> None:
    model = norm(dtype=F16)
    expected = ort.run(model, given(F16))["y"].astype(np.float32)
    lower(model, QNN)
    assert [n.op_type for n in model.graph] == ["SimplifiedLayerNormalization"]
    assert ort.worst(expected, ort.run(model, given(F16))["y"].astype(np.float32)) < 2e-3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exponent": 3.0}, "3 stands where 2 has to"),
        ({"inverse": "1/", "numerator": 2.0}, "2 stands where 1 has to"),
        ({"axis": 1}, "the mean is not over the last axis"),
        ({"width": 1}, "w is not one row of the last axis"),
    ],
)
def test_stays_where_a_condition_fails(changes: dict[str, Any], reason: str) -> None:
    rows = toys.target("Sqrt | any | illegal", "SimplifiedLayerNormalization | any | legal")
    report = plan(norm(**changes), rows)
    assert not report.changed
    (stuck,) = report.stuck
    assert reason in {tried.reason for tried in stuck.tried}


def test_stays_where_it_is_legal_and_the_one_op_is_not() -> None:
    assert not plan(norm(), target("onnx-standard")).changed


def test_large_values_are_right_on_htp(tmp_path) -> None:  # type: ignore[no-untyped-def]  # arguments of pytest
    """Trap 9: x² overflows fp16; trap 3: the weight-first form fails to finalize at all."""
    model = norm(weight_first=True)
    large = {"x": given()["x"] * 1000}
    expected = ort.run(model, large)["y"]
    lower(model, QNN)
    path = tmp_path / "model.onnx"
    ir.save(model, path)
    placed = place(path, ep="qnn", options={}, feeds=[large])
    assert placed.full
    assert 1e-6 < ort.worst(expected, placed.outputs[0]["y"]) < 5e-3
