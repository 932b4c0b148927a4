"""LayerNormalization and RMSNormalization lowered, against ONNX Runtime and onnx's reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort, toys
from tests.graphs import Builder

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
QNN = target("qnn", "2.7.0")
NO_NORM = toys.target("LayerNormalization | any | illegal", "RMSNormalization | any | illegal")


@dataclass(frozen=True)
class Case:
    """One node; ``outputs`` names those it has, ``bias`` is for LayerNormalization."""

    name: str
    op: str = "LayerNormalization"
    shape: tuple[int, ...] = (2, 3, 8)
    axis: int = -1
    bias: bool = True
    outputs: tuple[str, ...] = ("y",)
    epsilon: float | None = None
    dtype: ir.DataType = F32
    scale_shape: tuple[int, ...] | None = None
    const: bool = True


def node(case: Case) -> ir.Model:
    b = Builder()
    x = b.input("x", case.dtype, case.shape)
    normed = case.scale_shape or case.shape[case.axis % len(case.shape) :]
    names = ["scale", "bias"] if case.bias and case.op == "LayerNormalization" else ["scale"]
    weights = []
    for name in names:
        array = b.rng.standard_normal(normed).astype(case.dtype.numpy())
        weights.append(b.const(name, array) if case.const else b.input(name, case.dtype, normed))
    more = {} if case.epsilon is None else {"epsilon": case.epsilon}
    found = b.node(case.op, [x, *weights], case.outputs, axis=case.axis, **more)
    axis = case.axis % len(case.shape)
    small = case.shape[:axis] + (1,) * (len(case.shape) - axis)
    dtypes = [case.dtype, F32, F32]
    shapes = [case.shape, small, small]
    opset = 23 if case.op == "RMSNormalization" else 17
    return b.model([o for o in zip(found, dtypes, shapes, strict=False) if o[0].name], opset)


def feeds(model: ir.Model, size: float = 1.0) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": (size * rng.standard_normal(v.shape.numpy()) + 0.5).astype(v.dtype.numpy())  # type: ignore[union-attr]  # it has a shape
        for v in model.graph.inputs
    }


ALL, LAST = ("y", "mean", "inverse"), ("y", "", "inverse")
LAYER = [
    Case("axis 1", axis=1),
    Case("axis 0", axis=0, shape=(3, 8)),
    Case("axis 2 of 4", axis=2, shape=(2, 3, 4, 8), bias=False),
    Case("axis 1, run-time weights", axis=1, const=False),
    Case("rank 5", shape=(2, 1, 3, 2, 8)),
    Case("rank 5, axis 3", shape=(2, 1, 3, 2, 8), axis=3),
    Case("rank 5, weights of rank 5", shape=(2, 1, 3, 2, 8), scale_shape=(1, 1, 1, 1, 8)),
    Case("three outputs", outputs=ALL),
    Case("third output alone", outputs=LAST, epsilon=1e-2),
    Case("three outputs, axis 1, no bias", outputs=ALL, axis=1, bias=False),
    Case("rank 1, two outputs", shape=(8,), outputs=("y", "mean")),
]
RMS = [
    replace(case, op="RMSNormalization", name=f"rms {case.name}")
    for case in LAYER
    if case.outputs == ("y",) and case.bias
]


def _id(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


@pytest.mark.parametrize("case", [*LAYER, *RMS], ids=_id)
@pytest.mark.parametrize("ep", [QNN, NO_NORM], ids=str)
def test_equals_the_kernel(case: Case, ep: Target) -> None:
    model = node(case)
    given = feeds(model)
    expected = ort.run(model, given)
    report = lower(model, ep)
    assert not report.stuck
    actual = ort.run(model, given)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6
    kept = Counter(n.op_type for n in model.graph)[case.op]
    assert kept == (ep is QNN)


@pytest.mark.parametrize("case", [*LAYER, *RMS], ids=_id)
def test_the_reference_agrees(case: Case) -> None:
    """A second oracle: onnx's own evaluator of the original."""
    model = node(case)
    given = feeds(model)
    names = [name for name in case.outputs if name]
    found: Any = ReferenceEvaluator(ir.to_proto(model)).run(names, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    for name, reference in zip(names, found, strict=True):
        assert ort.worst(reference, actual[name]) < 2e-6


@pytest.mark.parametrize("ep", [QNN, NO_NORM], ids=str)
@pytest.mark.parametrize("case", [LAYER[0], LAYER[7], RMS[0]], ids=_id)
def test_half_precision(case: Case, ep: Target) -> None:
    """Values of 300, whose squares are out of range in float16, are computed in float32."""
    half, wide = node(replace(case, dtype=F16)), node(case)
    for name, value in half.graph.initializers.items():
        assert value.const_value is not None
        array = value.const_value.numpy().astype(np.float32)
        wide.graph.initializers[name].const_value = ir.tensor(array, name=name)
    given = feeds(half, 300.0)
    exact = ort.run(wide, {k: v.astype(np.float32) for k, v in given.items()})
    lower(half, ep)
    actual = ort.run(half, given)
    for name, reference in exact.items():
        assert ort.worst(reference, actual[name].astype(np.float32)) < 2e-3


@pytest.mark.parametrize(("stash", "least", "most"), [(10, 1e-5, 3e-3), (11, 0, 2e-7)])
@pytest.mark.parametrize("axis", [1, 2])
def test_the_type_of_the_computation_is_honoured(
    axis: int, stash: int, least: float, most: float
) -> None:
    """Of RMSNormalization, by the formula in float64: fp16 shows, and double is the closest."""
    model = node(Case("stash", "RMSNormalization", axis=axis))
    model.graph[0].attributes["stash_type"] = ir.AttrInt64("stash_type", stash)
    given = feeds(model)
    weight = model.graph.initializers["scale"].const_value
    assert weight is not None
    x = given["x"].astype(np.float64)
    exact = x / np.sqrt((x**2).mean(tuple(range(axis, 3)), keepdims=True) + 1e-5) * weight.numpy()
    lower(model, NO_NORM)
    found: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, given)  # ORT has no fp16 mean
    assert found[0].dtype == np.float32
    assert least <= ort.worst(exact, found[0]) < most


def test_rank_4_is_made_rank_3_where_a_device_was_wrong() -> None:
    """D32: exact on the CPU, with constant shapes."""
    model = node(Case("head norm", "RMSNormalization", (1, 4, 5, 8)))
    given = feeds(model)
    expected = ort.run(model, given)["y"]
    lower(model, toys.target("RMSNormalization | X rank 4 | wrong"))
    assert [n.op_type for n in model.graph] == ["Reshape", "RMSNormalization", "Reshape"]
    norm = model.graph[1]
    assert norm.inputs[0] is not None
    assert norm.inputs[0].shape == (1, 20, 8)
    assert np.array_equal(expected, ort.run(model, given)["y"])


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_what_is_fine_stays(op: str) -> None:
    assert not lower(node(Case("plain", op)), QNN).changed


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("", axis=1, scale_shape=(8,), bias=False), r"Scale \(8,\) has not the shape"),
        (Case("", "RMSNormalization", axis=1, scale_shape=(8,)), r"scale \(8,\) has not the"),
    ],
    ids=["Scale", "scale"],
)
def test_refuses_a_scale_that_broadcasts_within_what_is_normalized(case: Case, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(case), QNN, disable=["norm_primitives", "rms_normalization_primitives"])


@pytest.mark.parametrize(
    ("op", "primitives"),
    [
        ("LayerNormalization", "norm_primitives"),
        ("RMSNormalization", "rms_normalization_primitives"),
    ],
)
def test_refuses_to_flatten_what_is_flat(op: str, primitives: str) -> None:
    with pytest.raises(Stuck, match=r"over the last axis, at rank 3 or less"):
        lower(node(Case("plain", op)), NO_NORM, disable=[primitives])


@htp.needs_qnn
@pytest.mark.parametrize("case", [LAYER[0], LAYER[4], LAYER[7], LAYER[9], RMS[0], RMS[3]], ids=_id)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, expected, tmp_path)
