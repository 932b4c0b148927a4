"""Indices from the end, where OpenVINO before 2025.4 does not count so (``P/GatherElements``)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.graphs import Builder

OLD, NEW = target("openvino", "2025.2.0"), target("openvino", "2025.4.1")
INDEX = np.random.default_rng(1).integers(-6, 6, (2, 3, 8))
GIVEN = {"x": np.random.default_rng(2).standard_normal((2, 6, 8)).astype(np.float32)}


def _gathered(index: np.ndarray, axis: int, shape: tuple[int | str, ...] = (2, 6, 8)) -> ir.Model:
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, shape)
    y = b.op("GatherElements", x, b.const("index", index), name="y", axis=axis)
    return b.model([(y, ir.DataType.FLOAT, index.shape)])


def _rules(model: ir.Model, to: Target) -> list[str]:
    return [fired.rule for fired in lower(model, to).fired]


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=str)
@pytest.mark.parametrize("shape", [(2, 6, 8), ("batch", 6, 8)], ids=str)
def test_they_are_counted_from_the_start(
    axis: int, dtype: type, shape: tuple[int | str, ...]
) -> None:
    model = _gathered(INDEX.astype(dtype), axis, shape)
    expected = ort.run(model, GIVEN)
    assert _rules(model, OLD) == ["counted_from_the_start"]
    stored = [v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value]
    assert len(stored) == 1
    assert stored[0].dtype == dtype
    assert stored[0].min() >= 0
    assert np.array_equal(expected["y"], ort.run(model, GIVEN)["y"])


def test_others_stay() -> None:
    assert _rules(_gathered(INDEX, 1), NEW) == []
    assert _rules(_gathered(abs(INDEX) % 6, 1), OLD) == []


def test_an_axis_of_unknown_size_is_refused() -> None:
    with pytest.raises(Stuck, match="the size of axis 1 of the data is not known"):
        lower(_gathered(INDEX, 1, (2, "rows", 8)), OLD)
