"""Concat with a cache that is still empty."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
QNN = target("qnn", "2.7.0")


@pytest.mark.parametrize("rows", [[0, 3], [0, 3, 2], [3, 0, 2]], ids=str)
def test_empty_inputs_are_left_out(rows: list[int]) -> None:
    b = Builder()
    values = [b.input(f"x{i}", F32, (1, n, 4)) for i, n in enumerate(rows)]
    y = b.op("Concat", *values, name="y", axis=1)
    model = b.model([(y, F32, (1, sum(rows), 4))])
    rng = np.random.default_rng(0)
    given = {f"x{i}": rng.standard_normal((1, n, 4)).astype("f4") for i, n in enumerate(rows)}
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert [v.name for v in model.graph.inputs] == list(given)
    assert [v.name for v in model.graph.outputs] == ["y"]
    assert np.array_equal(expected, ort.run(model, given)["y"])


def test_nothing_at_all_is_refused() -> None:
    b = Builder()
    values = [b.input(name, F32, (1, 0, 4)) for name in ("x", "y")]
    model = b.model([(b.op("Concat", *values, name="z", axis=1), F32, (1, 0, 4))])
    with pytest.raises(Stuck, match="all inputs are empty"):
        lower(model, QNN)
