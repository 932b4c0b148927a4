"""Slice of booleans: dropped where it cuts nothing, through integers where it does."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import ort
from tests.graphs import Builder

BOOL = ir.DataType.BOOL
OLD = target("qnn", "2.6.0")


@pytest.mark.parametrize(
    ("bounds", "ops"),
    [
        ((0, 9, 1, 1), ["Not"]),
        ((0, 2**31 - 1, -1, 1), ["Not"]),
        ((2, 9, 1, 1), ["Cast", "Slice", "Cast", "Not"]),
        ((8, -10, 1, -1), ["Cast", "Slice", "Cast", "Not"]),
    ],
    ids=["all", "all of a large end", "a part", "backwards"],
)
def test_slices(bounds: tuple[int, int, int, int], ops: list[str]) -> None:
    b = Builder()
    x = b.input("x", BOOL, (1, 9))
    values = [b.const(n, np.array([v])) for n, v in zip("seat", bounds, strict=True)]
    cut = b.op("Slice", x, *values, name="cut")
    length = len(range(9)[slice(*(bounds[0], bounds[1] if bounds[1] > -10 else None, bounds[3]))])
    model = b.model([(b.op("Not", cut, name="y"), BOOL, (1, length))])
    given = {"x": np.array([[1, 0, 0, 1, 1, 0, 1, 0, 1]], np.bool_)}
    expected = ort.run(model, given)["y"]
    lower(model, OLD)
    assert [n.op_type for n in model.graph] == ops
    assert np.array_equal(expected, ort.run(model, given)["y"])
