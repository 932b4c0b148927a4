"""Where of integers with a branch of one element: QNN 2.3 does not repeat it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import lower
from rewriter.nodes import dims_of
from tests import ort
from tests.graphs import Builder

OLD, NEW = target("qnn", "2.3.0"), target("qnn", "2.4.0")
SHAPE = (2, 3, 1)
GIVEN = {
    "seen": np.random.default_rng(1).integers(0, 2, SHAPE).astype(bool),
    "fed": np.random.default_rng(2).integers(-9, 9, SHAPE),
    "one": np.array([[5]]),
}


def _where(dtype: ir.DataType, first: str, second: str, shape: tuple[int, ...]) -> ir.Model:
    b = Builder()
    seen = b.input("seen", ir.DataType.BOOL, shape)
    branches = [
        b.const(name, np.array(7, dtype.numpy()))
        if name == "stored"
        else b.input(name, dtype, shape if name == "fed" else (1, 1))
        for name in (first, second)
    ]
    return b.model([(b.op("Where", seen, *branches, name="y"), dtype, shape)])


def _lowered(model: ir.Model, to: Target) -> tuple[list[str], ort.Arrays, ort.Arrays]:
    dtypes = {value.name: value.dtype for value in model.graph.inputs}
    feeds = {
        name: GIVEN[name].astype(dtype.numpy())
        for name, dtype in dtypes.items()
        if name is not None and dtype is not None
    }
    expected = ort.run(model, feeds)
    lower(model, to)
    return [node.op_type for node in model.graph], expected, ort.run(model, feeds)


@pytest.mark.parametrize("dtype", [ir.DataType.INT32, ir.DataType.INT64], ids=str)
@pytest.mark.parametrize(
    ("first", "second", "ops"),
    [
        ("stored", "fed", ["Where"]),
        ("fed", "stored", ["Where"]),
        ("one", "fed", ["Expand", "Where"]),
        ("fed", "one", ["Expand", "Where"]),
        ("one", "stored", ["Expand", "Where"]),
    ],
)
def test_one_element_becomes_a_row(
    dtype: ir.DataType, first: str, second: str, ops: list[str]
) -> None:
    model = _where(dtype, first, second, SHAPE)
    became, expected, actual = _lowered(model, OLD)
    assert became == ops
    assert np.array_equal(expected["y"], actual["y"])
    where = next(node for node in model.graph if node.op_type == "Where")
    assert all(set(dims_of(value) or ()) > {1} for value in where.inputs if value is not None)


def test_later_versions_and_floats_stay() -> None:
    model = _where(ir.DataType.INT64, "fed", "stored", SHAPE)
    assert _lowered(model, NEW)[0] == ["Where"]
    assert "stored" in model.graph.initializers
    floats = _where(ir.DataType.FLOAT, "fed", "stored", SHAPE)
    _lowered(floats, OLD)
    assert "stored" in floats.graph.initializers
