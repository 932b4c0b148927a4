"""IsNaN lowered where x != x is right on HTP too, and refused elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
QNN = target("qnn", "2.7.0")


def guarded(op: str) -> ir.Model:
    """What torch writes behind a softmax: Where(IsNaN(p), 0, p)."""
    b = Builder()
    x = b.input("x", F32, (1, 2, 8))
    p = b.op(op, x, name="p")
    y = b.op("Where", b.op("IsNaN", p, name="n"), b.const("zero", np.float32(0)), p, name="y")
    return b.model([(y, F32, (1, 2, 8))])


def feeds() -> ort.Arrays:
    x = np.random.default_rng(1).standard_normal((1, 2, 8)).astype(np.float32)
    return {"x": x}


def test_of_a_softmax() -> None:
    model, given = guarded("Softmax"), feeds()
    given["x"][0, 0, 3] = np.nan
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert "IsNaN" not in {n.op_type for n in model.graph}
    assert np.array_equal(expected, ort.run(model, given)["y"])


@pytest.mark.parametrize("op", ["Exp", "Identity"])
def test_refuses_what_may_be_infinite(op: str) -> None:
    with pytest.raises(Stuck, match="x may be infinite, and an NPU that computes in fp16"):
        lower(guarded(op), QNN)


@htp.needs_qnn
@pytest.mark.parametrize("op", ["Softmax", "Tanh"])
def test_placed_whole_on_htp(op: str, tmp_path: Path) -> None:
    model, given = guarded(op), feeds()
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)


@htp.needs_qnn
def test_why_it_refuses(tmp_path: Path) -> None:
    """HTP reads every float32 beyond 65504 as NaN, and x != x then says yes as IsNaN does."""
    b = Builder()
    x = b.input("x", F32, (1, 1, 5))
    nan = b.op("Not", b.op("Equal", x, x, name="e"), name="n")
    one, zero = b.const("one", np.float32(1)), b.const("zero", np.float32(0))
    y = b.op("Where", nan, one, zero, name="y")
    model = b.model([(y, F32, (1, 1, 5))])
    given = np.array([[[np.nan, np.inf, 1e5, 65504, 0]]], np.float32)
    found = htp.run(model, {"x": given}, tmp_path)["y"]
    assert found.reshape(-1).round().tolist() == [1, 1, 1, 0, 0]
