"""A written-out RMS norm that cannot be raised multiplies by its root from the left."""

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
RAISING = ("rms_norm_weight_first", "rms_norm_weight_last")
GIVEN = {"x": np.random.default_rng(1).standard_normal((1, 8, 64)).astype(np.float32)}


def _norm(shape: tuple[int, ...], *, weight_first: bool = False) -> ir.Model:
    b = Builder()
    x = b.input("x", F32, (1, 8, 64))
    squares = b.op("Pow", x, b.const("two", np.float32(2)), name="squares")
    mean = b.op("ReduceMean", squares, b.const("axes", np.array([-1])), name="mean", keepdims=1)
    total = b.op("Add", mean, b.const("epsilon", np.float32(1e-3)), name="total")
    inverse = b.op("Reciprocal", b.op("Sqrt", total, name="root"), name="inverse")
    normed = b.op("Mul", x, inverse, name="normed")
    weight = b.const("w", b.rng.uniform(0.5, 1.5, shape).astype(np.float32))
    operands = (weight, normed) if weight_first else (normed, weight)
    return b.model([(b.op("Mul", *operands, name="y"), F32, (1, 8, 64))])


@pytest.mark.parametrize("weight_first", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (1, 8, 1), (64,)], ids=str)
@htp.needs_qnn
def test_the_root_comes_first_and_htp_computes_it(
    shape: tuple[int, ...], weight_first: bool, tmp_path: Path
) -> None:
    """As it was, it is all 0 for the first three, or no session is created (weight first)."""
    model = _norm(shape, weight_first=weight_first)
    expected = ort.run(model, GIVEN)
    report = lower(model, target("qnn", "2.7.0"), disable=RAISING)
    assert report.sites() == {("root_first", "Mul"): 1}
    assert ort.worst(expected["y"], ort.run(model, GIVEN)["y"]) == pytest.approx(0)
    htp.check(model, GIVEN, expected, tmp_path)


def test_a_norm_of_a_whole_row_is_raised_instead() -> None:
    report = lower(_norm((64,), weight_first=True), target("qnn", "2.7.0"))
    assert report.sites() == {("rms_norm_weight_first", "Mul"): 1}
