"""GELUs written out with Erf are raised where the runtime has no Erf, in any order of factors."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")
ORDERS = list(itertools.permutations(("x", "half", "sum")))


def written_out(
    order: tuple[str, ...] = ORDERS[0], *, inner_first: bool = True, scaled: str = "Div",
    half: float = 0.5, one_first: bool = False, dtype: ir.DataType = F32, opset: int = 18,
) -> ir.Model:  # fmt: skip
    b = Builder()
    kind = dtype.numpy()

    def number(name: str, value: float) -> ir.Value:
        return b.const(name, np.array(value, kind))

    x = b.input("x", dtype, (1, 8, 16))
    root = np.sqrt(2) if scaled == "Div" else np.sqrt(0.5)
    z = b.op(scaled, x, number("root", root), name="z")
    pair = [b.op("Erf", z, name="erf"), number("one", 1)]
    total = b.op("Add", *(pair[::-1] if one_first else pair), name="total")
    parts = {"x": x, "half": number("half", half), "sum": total}
    outer, *rest = (parts[name] for name in order)
    inner = b.op("Mul", *rest, name="inner")
    y = b.op("Mul", *((inner, outer) if inner_first else (outer, inner)), name="y")
    return b.model([(y, dtype, (1, 8, 16))], opset=opset)


def given(dtype: ir.DataType = F32) -> ort.Arrays:
    x = 3 * np.random.default_rng(0).standard_normal((1, 8, 16))
    return {"x": x.astype(dtype.numpy())}


@pytest.mark.parametrize("one_first", [False, True])
@pytest.mark.parametrize("scaled", ["Div", "Mul"])
@pytest.mark.parametrize("inner_first", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids="*".join)
def test_every_order(
    order: tuple[str, ...], inner_first: bool, scaled: str, one_first: bool
) -> None:
    model = written_out(order, inner_first=inner_first, scaled=scaled, one_first=one_first)
    expected = ort.run(model, given())["y"]
    lower(model, QNN)
    assert [(n.domain, n.op_type) for n in model.graph] == [("com.microsoft", "Gelu")]
    assert model.opset_imports[""] == 18
    assert ort.worst(expected, ort.run(model, given())["y"]) < 1e-6


def test_the_standard_one_where_it_has_one() -> None:
    model = written_out(opset=20)
    expected = ort.run(model, given())["y"]
    lower(model, QNN)
    assert [(n.domain, n.op_type) for n in model.graph] == [("", "Gelu")]
    assert ort.worst(expected, ort.run(model, given())["y"]) < 1e-6


def test_half_precision() -> None:
    model = written_out(dtype=F16)
    expected = ort.run(model, given(F16))["y"].astype(np.float32)
    lower(model, QNN)
    assert [n.op_type for n in model.graph] == ["Gelu"]
    assert ort.worst(expected, ort.run(model, given(F16))["y"].astype(np.float32)) < 2e-3


def test_another_factor_is_no_gelu() -> None:
    report = lower(written_out(half=0.7), QNN, allow_stuck=True)
    assert not report.changed
    assert [node.op for node in report.stuck] == ["Erf"]


def test_it_stays_where_only_its_parts_are_legal() -> None:
    assert not lower(written_out(), toys.target("Gelu | any | illegal")).changed
