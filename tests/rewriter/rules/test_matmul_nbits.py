"""MatMulNBits to the standard, and blocked DequantizeLinear -> MatMul to MatMulNBits.

The oracle is ORT on the original and, for the weights, the products with the identity matrix:
what comes out *is* the dequantized weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort, toys
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")


def nbits(
    *, bits: int = 4, block: int = 32, k: int = 64, n: int = 8, zero_points: bool = False,
    bias: bool = False, scales_rank: int = 2, **more: Any,
) -> ir.Model:  # fmt: skip
    b = Builder()
    blocks = -(-k // block)
    codes = b.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = b.rng.uniform(0.1, 1, (n, blocks)).astype(np.float32)
    inputs: list[ir.Value | None] = [
        b.input("a", F32, (1, k, k)),
        b.const("codes", codes),
        b.const("scales", scales if scales_rank == 2 else scales.reshape(-1)),
    ]
    if zero_points or bias:
        points = b.rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        inputs.append(b.const("points", points) if zero_points else None)
    if bias:
        inputs += [None, b.const("bias", b.rng.standard_normal(n).astype(np.float32))]
    y = b.op("com.microsoft::MatMulNBits", *inputs, name="y",
             **{"K": k, "N": n, "bits": bits, "block_size": block, **more})  # fmt: skip
    return b.model([(y, F32, (1, k, n))])


def identity(k: int) -> ort.Arrays:
    return {"a": np.eye(k, dtype=np.float32)[None]}


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("zero_points", [False, True], ids=["symmetric", "zero points"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"bits": 8},
        {"block": 16, "k": 80},
        {"block": 64},
        {"block": 128, "k": 128, "n": 3},
        {"n": 7},
        {"scales_rank": 1},
        {"accuracy_level": 4},
    ],
    ids=str,
)
def test_to_the_standard(sizes: dict[str, Any], zero_points: bool, bias: bool) -> None:
    model = nbits(zero_points=zero_points, bias=bias, **sizes)
    given = identity(sizes.get("k", 64))
    expected = ort.run(model, given)["y"]
    lower(model, STANDARD)
    assert {op_of(n) for n in model.graph} <= {"DequantizeLinear", "MatMul", "Add"}
    dequantize = next(n for n in model.graph if n.op_type == "DequantizeLinear")
    assert len(dequantize.inputs) == 3, "a zero point that is left out is read as unsigned on HTP"
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def test_the_zero_point_that_is_left_out_is_the_middle() -> None:
    """D25: K=32, N=1, all codes 10, scale 0.5, ones: 32.0; forgetting it gives 160."""
    b = Builder()
    a = b.input("a", F32, (1, 1, 32))
    codes, scales = (
        b.const("codes", np.full((1, 1, 16), 0xAA, np.uint8)),
        b.const("scales", np.full((1, 1), 0.5, np.float32)),
    )
    y = b.op("com.microsoft::MatMulNBits", a, codes, scales, name="y",
             K=32, N=1, bits=4, block_size=32)  # fmt: skip
    model = b.model([(y, F32, (1, 1, 1))])
    lower(model, STANDARD)
    ones = {"a": np.ones((1, 1, 32), np.float32)}
    assert np.array_equal(ort.run(model, ones)["y"], [[[32.0]]])
    scale = next(n for n in model.graph if n.op_type == "DequantizeLinear").inputs[1]
    assert scale is not None
    assert len(scale.shape or ()) == 1, "one block a row is a per-axis scale"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits": 3}, "3-bit codes have no ONNX type at opset 22"),
        ({"weight_prepacked": 1}, "prepacked weights have their own layout"),
    ],
)
def test_refuses(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(nbits(**changes), STANDARD)


def blocked(
    kind: str = "int4", *, zero_point: str = "", block: int = 32, k: int = 64, n: int = 8,
    axis: int = 0, rank: int = 3, uses: int = 1,
) -> ir.Model:  # fmt: skip
    b = Builder()
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[kind]
    dtype = ir.DataType[kind.upper()]
    a = b.input("a", F32, (1, k, k)[-rank:])
    scales_shape = (k // block, n) if axis == 0 else (k, n // block)
    weight: list[ir.Value | None] = [
        b.const("x", packing.integers(b.rng.integers(low, high, (k, n)), dtype)),
        b.const("scale", b.rng.uniform(0.1, 1, scales_shape).astype(np.float32)),
    ]
    if zero_point:
        points = b.rng.integers(low, high, scales_shape)
        points = {"zero": np.zeros_like(points), "eight": np.full_like(points, 8)}.get(
            zero_point, points
        )
        weight.append(b.const("points", packing.integers(points, dtype)))
    w = b.op("DequantizeLinear", *weight, name="w", axis=axis, block_size=block)
    ys = [b.op("MatMul", a, w, name=f"y{i}") for i in range(uses)]
    return b.model([(y, F32, (1, k, n)[-rank:]) for y in ys])


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("zero_point", ["", "zero", "eight", "random"])
def test_raised_to_matmul_nbits(kind: str, zero_point: str) -> None:
    model = blocked(kind, zero_point=zero_point)
    given = identity(64)
    expected = ort.run(model, given)["y0"]
    report = lower(model, QNN)
    assert [op_of(n) for n in model.graph] == ["com.microsoft::MatMulNBits"]
    assert report.sites() == {("matmul_nbits", "MatMul"): 1}
    assert ort.worst(expected, ort.run(model, given)["y0"]) < 1e-6


def test_a_middle_zero_point_is_not_stored() -> None:
    for kind, zero_point in (("int4", ""), ("int4", "zero"), ("uint4", "eight")):
        model = blocked(kind, zero_point=zero_point)
        lower(model, QNN)
        assert len(model.graph[0].inputs) == 3


def test_two_products_of_one_weight_share_its_codes() -> None:
    model = blocked(uses=2)
    given = identity(64)
    expected = ort.run(model, given)
    lower(model, QNN)
    assert [op_of(n) for n in model.graph] == ["com.microsoft::MatMulNBits"] * 2
    assert len(model.graph.initializers) == 2
    actual = ort.run(model, given)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 1e-6


@pytest.mark.parametrize("changes", [{"axis": 1, "n": 64}, {"block": 8}], ids=["along N", "8"])
def test_a_pattern_that_has_no_such_form_stays(changes: dict[str, Any]) -> None:
    model = blocked(**changes)
    report = lower(model, QNN, allow_stuck=True)
    assert not report.changed
    assert [node.op for node in report.stuck] == ["DequantizeLinear"]


def test_there_and_back_is_the_same_weight() -> None:
    model = blocked("uint4", zero_point="random")
    given = identity(64)
    expected = ort.run(model, given)["y0"]
    lower(model, toys.target("DequantizeLinear | any | illegal"))
    lower(model, STANDARD)
    assert np.array_equal(expected, ort.run(model, given)["y0"])


def test_older_readers_get_flat_scales() -> None:
    """Trap 8 of lowering.md: OpenVINO before 2025.2 reads only 1-D scales."""
    model = nbits(accuracy_level=4, zero_points=False)
    expected = ort.run(model, identity(64))["y"]
    report = lower(model, target("openvino", "2025.0.0"))
    assert report.sites() == {("flat_scales", "com.microsoft::MatMulNBits"): 1}
    (node,) = model.graph
    scales = node.inputs[2]
    assert scales is not None
    assert len(scales.shape or ()) == 1
    assert node.attributes["accuracy_level"].as_int() == 4
    assert np.array_equal(expected, ort.run(model, identity(64))["y"])


def test_flat_scales_are_no_way_out_of_another_trouble() -> None:
    model = nbits(bias=True)
    report = lower(model, toys.target("com.microsoft::MatMulNBits | bias given | illegal"))
    assert [fired.rule for fired in report.fired] == ["plain_matmul_nbits"]


@htp.needs_qnn
@pytest.mark.parametrize(
    "changes",
    [{"bias": True}, {"k": 80}, {"k": 80, "zero_points": True}, {"bias": True, "bits": 8}],
    ids=str,
)
def test_what_htp_leaves_to_the_cpu_runs_there_once_it_is_plain(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    model = nbits(**changes)
    k = changes.get("k", 64)
    given = {"a": np.random.default_rng(2).standard_normal((1, k, k)).astype(np.float32)}
    expected = ort.run(model, given)
    lower(model, QNN)
    assert any(op_of(n) == "com.microsoft::MatMulNBits" for n in model.graph)
    htp.check(model, given, expected, tmp_path)
