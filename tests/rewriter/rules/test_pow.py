"""Pow takes an exponent of the type of its base on HTP; nemotron of the genai builder has int32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import eps, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.graphs import Builder

F32, F16, I32, I64 = (
    ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32, ir.DataType.INT64,
)  # fmt: skip
SHAPE = (1, 4, 8)
QNN = [f"qnn@{v}" for ep in eps() if ep.name == "qnn" for v in ep.measured]


def _squared(base: ir.DataType, exponent: ir.DataType, *, stored: bool = True) -> ir.Model:
    """A squared ReLU."""
    b = Builder()
    x = b.op("Relu", b.input("x", base, SHAPE), name="kept")
    two = np.array([2], exponent.numpy())
    y = b.const("two", two) if stored else b.input("two", exponent, (1,))
    return b.model([(b.op("Pow", x, y, name="y"), base, SHAPE)])


def _given(base: ir.DataType) -> ort.Arrays:
    drawn = np.random.default_rng(0).standard_normal(SHAPE)
    return {"x": drawn.astype(base.numpy())}


@pytest.mark.parametrize("ep", QNN)
@pytest.mark.parametrize(("base", "exponent"), [(F32, I32), (F32, I64), (F32, F16), (F16, I64)])
def test_a_stored_exponent(base: ir.DataType, exponent: ir.DataType, ep: str) -> None:
    model = _squared(base, exponent)
    report = lower(model, target(ep))
    assert report.sites() == {("exponent_as_base", "Pow"): 1}
    assert not report.unknown
    assert [node.op_type for node in model.graph] == ["Relu", "Pow"]
    given = _given(base)
    squares = np.maximum(given["x"], 0).astype(np.float64) ** 2
    assert squares.max() > 1
    bound = 1e-6 if base == F32 else 2e-3
    assert np.allclose(ort.run(model, given)["y"], squares, rtol=bound, atol=bound)


def test_an_exponent_of_the_run() -> None:
    model = _squared(F32, I64, stored=False)
    given = _given(F32) | {"two": np.array([3])}
    expected = ort.run(model, given)["y"]
    assert expected.max() > 1
    lower(model, target("qnn", "2.7.0"))
    assert [node.op_type for node in model.graph] == ["Relu", "Cast", "Pow"]
    assert np.allclose(expected, ort.run(model, given)["y"], rtol=1e-6)


@htp.needs_qnn
def test_htp_runs_it(tmp_path: Path) -> None:
    model, given = _squared(F32, I32), _given(F32)
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    htp.check(model, given, expected, tmp_path)


def test_what_is_left_alone() -> None:
    for ep in (target("qnn", "2.7.0"), target("openvino", "2026.4.1")):
        assert not lower(_squared(F32, F32), ep).fired
    assert not lower(_squared(F32, I32), target("openvino", "2026.4.1")).fired


def test_an_exponent_that_is_no_number_of_the_base_is_refused() -> None:
    b = Builder()
    x = b.input("x", F32, SHAPE)
    y = b.op("Pow", x, b.const("odd", np.array([2**24 + 1])), name="y")
    with pytest.raises(Stuck, match=r"is no FLOAT") as caught:
        lower(b.model([(y, F32, SHAPE)]), target("qnn", "2.7.0"))
    assert len(caught.value.report.stuck) == 1
