"""Gemm with factors, against ONNX Runtime's kernel."""

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

F32, F16, I32 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT32
QNN = target("qnn", "2.7.0")


def node(c: str = "const", dtype: ir.DataType = F32, **more: Any) -> ir.Model:
    """(4, 6) x (6, 8), either stored transposed; C is ``const``, ``run time`` or ``none``."""
    b = Builder()
    a = b.input("a", dtype, (6, 4) if more.get("transA") else (4, 6))
    shape = (8, 6) if more.get("transB") else (6, 8)
    inputs = [a, b.const("b", b.rng.standard_normal(shape).astype(dtype.numpy()))]
    if c == "const":
        inputs.append(b.const("c", b.rng.standard_normal(8).astype(dtype.numpy())))
    elif c == "run time":
        inputs.append(b.input("c", dtype, (4, 8)))
    y = b.op("Gemm", *inputs, name="y", **more)
    return b.model([(y, dtype, (4, 8))])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # it has a shape
        for v in model.graph.inputs
    }


FACTORS: list[dict[str, Any]] = [
    {"alpha": 0.5},
    {"beta": 2.0},
    {"alpha": -3.0, "beta": 0.0},
    {"alpha": 0.25, "beta": 0.75, "transA": 1, "transB": 1},
]


@pytest.mark.parametrize("c", ["const", "run time", "none"])
@pytest.mark.parametrize("more", FACTORS, ids=str)
def test_equals_the_kernel(more: dict[str, Any], c: str) -> None:
    model = node(c, **more)
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert {n.op_type for n in model.graph} <= {"Mul", "Gemm"}
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_half_precision() -> None:
    half, wide = node(dtype=F16, **FACTORS[3]), node(**FACTORS[3])
    for name, value in half.graph.initializers.items():
        assert value.const_value is not None
        array = value.const_value.numpy().astype(np.float32)
        wide.graph.initializers[name].const_value = ir.tensor(array, name=name)
    given = feeds(half)
    exact = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})["y"]
    lower(half, QNN)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 4e-3


def test_refuses_integers() -> None:
    b = Builder()
    y = b.op("Gemm", b.input("a", I32, (2, 3)), b.input("b", I32, (3, 4)), name="y", alpha=2.0)
    with pytest.raises(Stuck, match="factors of INT32 matrices are not handled"):
        lower(b.model([(y, I32, (2, 4))]), QNN)


def test_refuses_what_has_no_factors() -> None:
    with pytest.raises(Stuck, match="alpha and beta are 1 already"):
        lower(node(), toys.target("Gemm | any | illegal"))


@htp.needs_qnn
@pytest.mark.parametrize("more", [FACTORS[0], FACTORS[3]], ids=str)
def test_placed_whole_on_htp(more: dict[str, Any], tmp_path: Path) -> None:
    model = node(**more)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
