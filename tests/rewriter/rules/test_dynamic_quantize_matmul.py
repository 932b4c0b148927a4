"""Products of dynamically quantized integers, as one contrib op and as ORT's quantizer writes them.

The oracle is ONNX Runtime on the original: the activation is rounded on both sides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort, toys
from tests.graphs import Builder

F32, U8 = ir.DataType.FLOAT, ir.DataType.UINT8
QNN, STANDARD = target("qnn", "2.7.0"), target("onnx-standard")
NBITS = "com.microsoft::MatMulNBits"


def node(
    kind: str = "DynamicQuantizeMatMul", *, points: bool = True, bias: bool = True,
    columns: bool = True, dtype: Any = np.int8, const: bool = True, k: int = 64,
) -> ir.Model:  # fmt: skip
    b = Builder()
    # Processors without VNNI saturate sums of two products of signed codes beyond 64.
    low, count = (-64, 128) if dtype is np.int8 else (0, 256)
    row: tuple[int, ...] = (8,) if columns else ()
    w = b.const("w", b.rng.integers(low, low + count, (k, 8)).astype(dtype))
    w = w if const else b.input("w_run", ir.DataType.INT8, (k, 8))
    scale = b.const("w_scale", np.asarray(b.rng.uniform(0.01, 0.1, row), np.float32))
    point = b.const(
        "w_zero", np.asarray(b.rng.integers(low + count // 3, low + count // 2, row)).astype(dtype)
    )
    a = b.input("a", U8 if kind == "MatMulIntegerToFloat" else F32, (1, 5, k))
    add = b.const("bias", b.rng.standard_normal(8).astype(np.float32)) if bias else None
    if kind == "MatMulIntegerToFloat":
        inputs: list[ir.Value | None] = [
            a,
            w,
            b.const("s", np.float32(0.02)),
            scale,
            b.const("z", np.uint8(7)),
        ]
        inputs += [point if points else None, add]
    elif kind == "DynamicQuantizeMatMul":
        inputs = [a, w, scale, point if points else None, add]
    else:
        q, s, z = b.node("DynamicQuantizeLinear", [a], ["q", "s", "z"])
        product = b.op("MatMulInteger", q, w, z, *([point] if points else []), name="product")
        number = b.op("Cast", product, name="number", to=1)
        scales = b.op("Mul", s, scale, name="scales")
        both = (number, scales) if kind == "written out" else (scales, number)
        return b.model([(b.op("Mul", *both, name="y"), F32, (1, 5, 8))])
    while inputs[-1] is None:
        inputs.pop()
    y = b.op(f"com.microsoft::{kind}", *inputs, name="y")
    return b.model([(y, F32, (1, 5, 8))])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(np.float32)  # type: ignore[union-attr]  # it has a shape
        if v.dtype == F32
        else rng.integers(0, 100, v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # it has a shape
        for v in model.graph.inputs
    }


FORMS: list[dict[str, Any]] = [
    {},
    {"points": False, "bias": False},
    {"columns": False},
    {"dtype": np.uint8},
    {"dtype": np.uint8, "points": False},
    {"k": 80},
]


@pytest.mark.parametrize("on", ["onnx-standard", "qnn@2.7.0", "qnn@2.4.0", "openvino@2025.4.1"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_equals_the_kernel(kind: str, form: dict[str, Any], on: str) -> None:
    model = node(kind, **form)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    ep, _, version = on.partition("@")
    lower(model, target(ep, version) if version else target(ep))
    assert kind not in {n.op_type for n in model.graph}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_a_weight_of_run_time_stays_a_product_of_integers(kind: str) -> None:
    model = node(kind, const=False)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert "MatMulInteger" in {n.op_type for n in model.graph}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("kind", ["written out", "written out, scales first"])
def test_what_the_quantizer_writes(kind: str, points: bool) -> None:
    model = node(kind, points=points)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert [op_of(n) for n in model.graph] == ["DynamicQuantizeLinear", "DequantizeLinear", NBITS]
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-5


def test_integers_stay_where_there_are_products_of_them() -> None:
    for ep in (STANDARD, target("openvino", "2026.4.1")):
        assert not lower(node("written out"), ep).changed


def test_a_weight_of_run_time_is_stuck_on_htp_and_says_so() -> None:
    with pytest.raises(Stuck, match="no product of integers on HTP"):
        lower(node("written out", const=False), QNN)


def test_refuses_a_row_of_scales_of_the_activation() -> None:
    model = node("MatMulIntegerToFloat")
    scale = model.graph.initializers["s"]
    scale.const_value = ir.tensor(np.full(5, 0.02, np.float32), name="s")
    scale.shape = ir.Shape((5,))
    with pytest.raises(Stuck, match="a_scale with a row of scales is not handled"):
        lower(model, toys.target("com.microsoft::MatMulIntegerToFloat | any | illegal"))


@htp.needs_qnn
@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "written out"])
def test_placed_whole_on_htp(kind: str, tmp_path: Path) -> None:
    model = node(kind)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
