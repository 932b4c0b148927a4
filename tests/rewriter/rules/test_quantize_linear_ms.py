"""com.microsoft QuantizeLinear and DequantizeLinear as those of the standard, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
STANDARD = target("onnx-standard")


def node(
    kind: str = "UINT16", *, axis: int | None = None, point: int | None = 3, row: bool = False,
    dtype: ir.DataType = F32,
) -> ir.Model:  # fmt: skip
    b = Builder()
    shape: tuple[int, ...] = () if axis is None and not row else (8,)
    scale = b.const("s", np.asarray(b.rng.uniform(0.01, 0.1, shape)).astype(dtype.numpy()))
    inputs = [scale]
    if point is not None:
        points = packing.integers(np.full(shape, point), ir.DataType[kind])
        inputs.append(b.const("z", points))
    more = {} if axis is None else {"axis": axis}
    q = b.op("com.microsoft::QuantizeLinear", b.input("x", dtype, (1, 5, 8)), *inputs, name="q",
             **more)  # fmt: skip
    y = b.op("com.microsoft::DequantizeLinear", q, *inputs, name="y", **more)
    return b.model([(y, dtype, (1, 5, 8))], 21)


FORMS: list[dict[str, Any]] = [
    {},
    *({"kind": kind} for kind in ("INT16", "INT8", "UINT8", "INT4", "UINT4")),
    {"kind": "UINT8", "point": None},
    {"kind": "INT8", "axis": 2},
    {"kind": "UINT16", "axis": -1},
    {"dtype": F16},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_equals_the_kernel(form: dict[str, Any]) -> None:
    model = node(**form)
    x = np.random.default_rng(1).standard_normal((1, 5, 8)) * 9
    given = {"x": x.astype(form.get("dtype", F32).numpy())}
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert [n.op_type for n in model.graph] == ["QuantizeLinear", "DequantizeLinear"]
    assert not any(n.domain for n in model.graph)
    assert np.array_equal(expected, ort.run(model, given)["y"])


def test_a_row_of_scales_without_an_axis_is_refused() -> None:
    with pytest.raises(Stuck, match="several scales, and no axis they belong to"):
        lower(node(row=True), STANDARD)
