"""Gelu, BiasGelu, FastGelu, QuickGelu and Swish lowered, against ONNX Runtime's kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import Target, target
from rewriter.lowering import lower
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16, F64 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE
STANDARD, QNN, OLD_QNN = target("onnx-standard"), target("qnn", "2.7.0"), target("qnn", "2.4.0")
PRIMITIVES = toys.target("Gelu | any | illegal", "Swish | any | illegal")


@dataclass(frozen=True)
class Case:
    """One node and what it becomes on a target."""

    op: str
    ep: Target
    after: tuple[str, ...]
    bias: bool = False
    attributes: tuple[tuple[str, Any], ...] = ()
    opset: int = 22
    dtype: ir.DataType = F32
    opset_after: int = 22

    def __str__(self) -> str:
        attributes = ", ".join(f"{k}={v}" for k, v in self.attributes)
        return f"{self.op} {attributes} opset {self.opset} on {self.ep}{' bias' * self.bias}"


def node(case: Case) -> ir.Model:
    b = Builder()
    inputs = [b.input("x", case.dtype, (2, 3, 8))]
    if case.bias:
        inputs.append(b.const("bias", b.rng.standard_normal(8).astype(case.dtype.numpy())))
    y = b.op(case.op, *inputs, name="y", **dict(case.attributes))
    return b.model([(y, case.dtype, (2, 3, 8))], case.opset)


def feeds(dtype: ir.DataType = F32) -> ort.Arrays:
    """Values around 0 and far from it on both sides."""
    x = np.linspace(-12, 12, 48).reshape(2, 3, 8)
    return {"x": x.astype(dtype.numpy())}


MS = "com.microsoft::"
TANH = (("approximate", "tanh"),)
CASES = [
    Case(f"{MS}BiasGelu", STANDARD, ("Add", "Gelu"), bias=True),
    Case(f"{MS}BiasGelu", STANDARD, ("Add", "Gelu"), bias=True, opset=17, opset_after=20),
    Case(f"{MS}BiasGelu", QNN, ("Add", "Gelu"), bias=True),
    Case(f"{MS}FastGelu", STANDARD, ("Gelu",)),
    Case(f"{MS}FastGelu", QNN, ("Add", "Gelu"), bias=True),
    Case(f"{MS}Gelu", STANDARD, ("Gelu",)),
    Case(f"{MS}QuickGelu", STANDARD, ("Mul", "Sigmoid", "Mul")),
    Case(f"{MS}QuickGelu", STANDARD, ("Mul", "Sigmoid", "Mul"), attributes=(("alpha", 0.5),)),
    Case(f"{MS}QuickGelu", STANDARD, ("Sigmoid", "Mul"), attributes=(("alpha", 1.0),)),
    Case("Gelu", PRIMITIVES, ("Mul", "Erf", "Mul", "Add", "Mul")),
    Case("Gelu", PRIMITIVES, ("Mul", "Mul", "Add", "Mul", "Tanh", "Mul", "Add", "Mul"),
         attributes=TANH),
    Case("Swish", OLD_QNN, ("Sigmoid", "Mul"), opset=24, opset_after=24),
    Case("Swish", PRIMITIVES, ("Mul", "Sigmoid", "Mul"), attributes=(("alpha", 1.7),), opset=24,
         opset_after=24),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_kernel(case: Case) -> None:
    model = node(case)
    expected = ort.run(model, feeds())["y"]
    lower(model, case.ep)
    assert sorted(n.op_type for n in model.graph) == sorted(case.after)
    assert model.opset_imports[""] == case.opset_after
    assert ort.worst(expected, ort.run(model, feeds())["y"]) < 2e-6


@pytest.mark.parametrize("case", [case for case in CASES if "::" not in case.op], ids=str)
def test_the_reference_agrees(case: Case) -> None:
    model = node(case)
    found: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, feeds())
    lower(model, case.ep)
    assert ort.worst(found[0], ort.run(model, feeds())["y"]) < 2e-6


@pytest.mark.parametrize("case", [*CASES[:2], CASES[7], *CASES[9:]], ids=str)
def test_half_precision(case: Case) -> None:
    half, wide = node(replace(case, dtype=F16)), node(case)
    if case.bias:
        stored = half.graph.initializers["bias"].const_value
        assert stored is not None
        exact_bias = ir.tensor(stored.numpy().astype(np.float32), name="bias")
        wide.graph.initializers["bias"].const_value = exact_bias
    given = feeds(F16)
    exact = ort.run(wide, {"x": given["x"].astype(np.float32)})["y"]
    lower(half, case.ep)
    assert ort.worst(exact, ort.run(half, given)["y"].astype(np.float32)) < 2e-3


def test_double_is_computed_in_double() -> None:
    """By the formula: onnx's reference has constants and Erf in float32, ORT no such Erf."""
    case = Case("Gelu", PRIMITIVES, (), dtype=F64, attributes=TANH)
    model, given = node(case), feeds(F64)
    x = given["x"]
    expected = x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    lower(model, case.ep)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-15


@htp.needs_qnn
@pytest.mark.parametrize("case", [CASES[2], CASES[4], CASES[11], CASES[10], CASES[7]], ids=str)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    expected = ort.run(model, feeds())
    lower(model, case.ep)
    htp.check(model, feeds(), expected, tmp_path)
