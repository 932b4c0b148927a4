"""Rotary tables computed at run time become constant tables; the oracle is ORT on the original."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Facts, Verdict, target
from rewriter.facts import facts_of
from rewriter.lowering import Stuck, lower
from rewriter.placement import place
from tests import ort
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
QNN = target("qnn", "2.7.0")
RATES = (10000.0 ** -(np.arange(0, 16, 2) / 16)).astype(np.float32)


def _optimum(b: Builder, positions: ir.Value) -> ir.Value:
    """inv_freq (1, D/2, 1) @ positions (B, 1, S), transposed and doubled."""
    row = b.op("Unsqueeze", positions, b.const("axis", np.array([1])), name="row")
    floats = b.op("Cast", row, name="floats", to=1)
    rates = b.op("Expand", b.const("rates", RATES[None, :, None]),
                 b.const("shape", np.array([1, 8, 1])), name="expanded")  # fmt: skip
    angles = b.op("MatMul", b.op("Cast", rates, name="cast", to=1), floats, name="angles")
    transposed = b.op("Transpose", angles, name="transposed", perm=[0, 2, 1])
    return b.op("Concat", transposed, transposed, name="doubled", axis=-1)


def _scaled(b: Builder, positions: ir.Value) -> ir.Value:
    """Positions / 4 times rates, plus a start."""
    column = b.op("Unsqueeze", positions, b.const("axis", np.array([2])), name="column")
    floats = b.op("Cast", column, name="floats", to=1)
    slow = b.op("Div", floats, b.const("four", np.float32(4)), name="slow")
    angles = b.op("Mul", slow, b.const("rates", RATES[None, None]), name="angles")
    return b.op("Add", angles, b.const("start", np.float32(0.5)), name="started")


def build(
    op: str, angles: Callable[[Builder, ir.Value], ir.Value], tokens: int = 3, batch: int = 1
) -> ir.Model:
    b = Builder()
    positions = b.input("positions", I64, (batch, tokens))
    y = b.op(op, angles(b, positions), name="y")
    width = 16 if angles is _optimum else 8
    return b.model([(y, F32, (batch, tokens, width))])


@pytest.mark.parametrize("op", ["Cos", "Sin"])
@pytest.mark.parametrize("angles", [_optimum, _scaled])
@pytest.mark.parametrize("positions", [[[0, 1, 2]], [[7, 3, 100]], [[4095, 4000, 2048]]], ids=str)
def test_equals_the_original(
    op: str, angles: Callable[[Builder, ir.Value], ir.Value], positions: list[list[int]]
) -> None:
    model = build(op, angles)
    given = {"positions": np.array(positions)}
    expected = ort.run(model, given)["y"]
    report = lower(model, QNN)
    assert report.ops_after["Gather"] == 1
    assert not report.ops_after[op]
    rounding = 1e-6 if angles is _optimum else 1e-6 + 1e-7 * np.max(positions)
    assert ort.worst(expected, ort.run(model, given)["y"]) < rounding
    assert any("positions 0 to 4095" in note for note in report.notes)


def test_a_batch() -> None:
    model = build("Cos", _scaled, tokens=4, batch=2)
    given = {"positions": np.array([[0, 1, 2, 3], [9, 8, 7, 6]])}
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def test_htp_is_right_where_it_was_wrong(tmp_path) -> None:  # type: ignore[no-untyped-def]  # arguments of pytest
    """The row's own figure: the original is off by more than 1 near position 4,000."""
    given = {"positions": np.array([[4095, 4000, 3500]])}
    original = build("Cos", _scaled)
    expected = ort.run(original, given)["y"]
    rewritten = build("Cos", _scaled)
    lower(rewritten, QNN)
    errors = []
    for name, model in (("original", original), ("rewritten", rewritten)):
        path = tmp_path / f"{name}.onnx"
        ir.save(model, path)
        placed = place(path, ep="qnn", options={}, feeds=[given])
        assert placed.full
        errors.append(float(np.abs(placed.outputs[0]["y"] - expected).max()))
    assert errors[0] > 0.1
    assert 1e-6 < errors[1] < 2e-3


def test_constant_positions_fold() -> None:
    b = Builder()
    x = b.input("x", F32, (1, 3, 8))
    positions = b.const("positions", np.array([[5, 6, 7]]))
    y = b.op("Mul", x, b.op("Cos", _scaled(b, positions), name="cosines"), name="y")
    model = b.model([(y, F32, (1, 3, 8))])
    given = {"x": np.random.default_rng(0).standard_normal((1, 3, 8)).astype(np.float32)}
    expected = ort.run(model, given)["y"]
    report = lower(model, QNN)
    assert not report.ops_after["Cos"]
    assert not report.ops_after["Gather"]
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def test_angles_in_another_order_are_refused() -> None:
    """(B, D, S): a row of the table is no row of the result."""

    def columns(b: Builder, positions: ir.Value) -> ir.Value:
        row = b.op("Unsqueeze", positions, b.const("axis", np.array([1])), name="row")
        floats = b.op("Cast", row, name="floats", to=1)
        return b.op("Mul", floats, b.const("rates", RATES[None, :, None]), name="angles")

    b = Builder()
    y = b.op("Cos", columns(b, b.input("positions", I64, (1, 3))), name="y")
    model = b.model([(y, F32, (1, 8, 3))])
    with pytest.raises(Stuck, match="the angles are not ordered by position"):
        lower(model, QNN)


def test_other_cosines_stay() -> None:
    b = Builder()
    model = b.model([(b.op("Cos", b.input("x", F32, (2, 3)), name="y"), F32, (2, 3))])
    assert not lower(model, QNN).changed
    facts: Facts = facts_of(model.graph[0], {"": 22})
    assert QNN.judge(facts).verdict is Verdict.LEGAL
