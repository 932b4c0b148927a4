"""CumSum lowered, against ONNX Runtime's kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort, toys
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
QNN = target("qnn", "2.7.0")
FORMS: list[dict[str, Any]] = [{"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}]


def node(axis: int = -1, dtype: ir.DataType = F32, length: int = 6, **more: int) -> ir.Model:
    b = Builder()
    shape = (2, 3, length)
    y = b.op("CumSum", b.input("x", dtype, shape), b.const("axis", np.array(axis)), name="y",
             **more)  # fmt: skip
    return b.model([(y, dtype, shape)])


def feeds(dtype: ir.DataType = F32, length: int = 6) -> ort.Arrays:
    x = np.random.default_rng(1).standard_normal((2, 3, length)) * 9
    return {"x": x.astype(dtype.numpy())}


@pytest.mark.parametrize("more", FORMS, ids=str)
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [F32, I64], ids=str)
@pytest.mark.parametrize("length", [6, 1])
def test_equals_the_kernel(
    more: dict[str, Any], axis: int, dtype: ir.DataType, length: int
) -> None:
    model, given = node(axis, dtype, length, **more), feeds(dtype, length)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert np.array_equal(expected, ort.run(model, given)["y"])


def test_refuses() -> None:
    with pytest.raises(Stuck, match="it is neither reverse nor exclusive"):
        lower(node(), toys.target("CumSum | any | illegal"))
    model = node(**FORMS[0])
    value = model.graph.initializers.pop("axis")
    value.const_value = None
    model.graph.inputs.append(value)
    with pytest.raises(Stuck, match="axis is not a constant"):
        lower(model, QNN)


@htp.needs_qnn
@pytest.mark.parametrize("more", FORMS, ids=str)
def test_placed_whole_on_htp(more: dict[str, Any], tmp_path: Path) -> None:
    model, given = node(**more), feeds()
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
