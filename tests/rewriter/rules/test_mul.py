"""A written-out RMS norm that cannot be raised gets its weight last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import htp, ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def _norm() -> ir.Model:
    b = Builder()
    x = b.input("x", F32, (1, 8, 64))
    squares = b.op("Pow", x, b.const("two", np.float32(2)), name="squares")
    mean = b.op("ReduceMean", squares, b.const("axes", np.array([-1])), name="mean", keepdims=1)
    total = b.op("Add", mean, b.const("epsilon", np.float32(1e-3)), name="total")
    inverse = b.op("Reciprocal", b.op("Sqrt", total, name="root"), name="inverse")
    normed = b.op("Mul", x, inverse, name="normed")
    weight = b.const("w", b.rng.uniform(0.5, 1.5, 64).astype(np.float32))
    return b.model([(b.op("Mul", weight, normed, name="y"), F32, (1, 8, 64))])


@htp.needs_qnn
def test_the_weight_comes_last_and_the_session_is_created(tmp_path: Path) -> None:
    model = _norm()
    given = {"x": np.random.default_rng(1).standard_normal((1, 8, 64)).astype(np.float32)}
    expected = ort.run(model, given)
    raising = ("rms_norm_weight_first", "rms_norm_weight_last")
    report = lower(model, target("qnn", "2.7.0"), disable=raising)
    assert report.sites() == {("weight_last", "Mul"): 1}
    assert ort.worst(expected["y"], ort.run(model, given)["y"]) == pytest.approx(0)
    htp.check(model, given, expected, tmp_path)


def test_a_norm_of_a_whole_row_is_raised_instead() -> None:
    report = lower(_norm(), target("qnn", "2.7.0"))
    assert report.sites() == {("rms_norm_weight_first", "Mul"): 1}
