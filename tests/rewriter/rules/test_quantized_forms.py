"""Exact moves between the forms of quantized weights: the same numbers, bit by bit.

The oracle is ONNX Runtime's kernel on the original. Products are with the identity, so that what
comes out is the dequantized weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter import packing
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort, toys
from tests.graphs import Builder
from tests.nbits import NBITS, given, nbits
from tests.quantized import BITS, LOW, weight

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64
QNN, STANDARD = target("qnn", "2.7.0"), target("onnx-standard")


def codes(b: Builder, kind: str, shape: tuple[int, ...]) -> ir.TensorProtocol:
    low = LOW[kind]
    drawn = b.rng.integers(low, low + (1 << BITS[kind]), shape)
    return packing.integers(drawn, ir.DataType[kind.upper()])


def conv(kind: str, grain: str, *, point: bool, line: bool = False, **more: Any) -> ir.Model:
    """A Conv of points over the identity: what comes out is its weight, transposed."""
    b, (n, k) = Builder(), (12, 64)
    tail = (1,) if line else (1, 1)
    scales: tuple[int, ...] = {"tensor": (), "channel": (n,)}.get(grain, (n, k // 32, *tail))
    inputs = [
        b.const("x", codes(b, kind, (n, k, *tail))),
        b.const("scale", np.asarray(b.rng.uniform(0.1, 1, scales), np.float32)),
    ]
    if point:
        inputs.append(b.const("point", codes(b, kind, scales)))
    axis = {"tensor": {}, "channel": {"axis": 0}}.get(grain, {"axis": 1, "block_size": 32})
    w = b.op("DequantizeLinear", *inputs, name="w", **axis)
    bias = b.const("bias", b.rng.standard_normal(n).astype(np.float32))
    points = (k,) if line else (8, 8)
    y = b.op("Conv", b.input("a", F32, (1, k, *points)), w, bias, name="y", **more)
    return b.model([(y, F32, (1, n, *points))], 21)


def over_points(model: ir.Model) -> ort.Arrays:
    shape = model.graph.inputs[0].shape
    assert shape is not None
    return {"a": np.eye(64, dtype=np.float32).reshape(shape.numpy())}


@pytest.mark.parametrize("line", [False, True], ids=["plane", "line"])
@pytest.mark.parametrize("point", [False, True], ids=["no zero point", "zero point"])
@pytest.mark.parametrize("grain", ["channel", "blocked"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
def test_a_conv_of_points_is_a_product_over_channels(
    kind: str, grain: str, point: bool, line: bool
) -> None:
    model = conv(kind, grain, point=point, line=line)
    expected = ort.run(model, over_points(model))["y"]
    lower(model, QNN)
    assert {op_of(node) for node in model.graph} == {"Transpose", NBITS, "Add", "Reshape"} - (
        {"Reshape"} if line else set()
    )
    assert ort.worst(expected, ort.run(model, over_points(model))["y"]) < 1e-6


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"strides": [2, 2]}, "its strides leave points out"),
        ({"pads": [1, 1, 1, 1]}, "it pads"),
    ],
)
def test_a_conv_of_more_stays(more: dict[str, Any], reason: str) -> None:
    model = conv("int8", "channel", point=True, **more)
    side = 4 if "strides" in more else 10
    model.graph.outputs[0].shape = ir.Shape((1, 12, side, side))
    with pytest.raises(Stuck, match="DequantizeLinear") as caught:
        lower(model, QNN)
    (stuck,) = caught.value.report.stuck
    assert reason in {one.rule: one.reason for one in stuck.tried}["conv_nbits"]


def table(kind: str, grain: str, point: str, rows: int = 40, width: int = 96) -> ir.Model:
    """Rows of a table behind DequantizeLinear."""
    b = Builder()
    scales = (rows,) if grain == "row" else (rows, width // 32)
    inputs = [
        b.const("x", codes(b, kind, (rows, width))),
        b.const("scale", b.rng.uniform(0.1, 1, scales).astype(np.float32)),
    ]
    if point == "zero":
        zeros = packing.integers(np.zeros(scales, np.int64), ir.DataType[kind.upper()])
        inputs.append(b.const("point", zeros))
    elif point:
        inputs.append(b.const("point", codes(b, kind, scales)))
    axis = {"axis": 0} if grain == "row" else {"axis": 1, "block_size": 32}
    y = b.op("DequantizeLinear", *inputs, name="w", **axis)
    y = b.op("Gather", y, b.input("ids", I64, (1, 4)), name="y")
    return b.model([(y, F32, (1, 4, width))], 21)


RAISING = ("matmul_nbits", "matmul_nbits_of_columns", "matmul_nbits_of_rows")
IDS = {"ids": np.array([[0, 39, 7, 7]])}
ROWS = toys.target(
    "DequantizeLinear | any | illegal",
    "com.microsoft::GatherBlockQuantized | any | legal",
)


@pytest.mark.parametrize("point", ["", "zero", "any"])
@pytest.mark.parametrize("grain", ["row", "blocked"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
def test_a_dequantized_table_is_looked_up(kind: str, grain: str, point: str) -> None:
    model = table(kind, grain, point)
    expected = ort.run(model, IDS)["y"]
    raised = model.clone()
    lower(raised, ROWS)
    assert [op_of(node) for node in raised.graph] == ["com.microsoft::GatherBlockQuantized"]
    np.testing.assert_array_equal(ort.run(raised, IDS)["y"], expected)
    lower(model, QNN)  # which has no such op, and no standalone DequantizeLinear of these
    np.testing.assert_array_equal(ort.run(model, IDS)["y"], expected)


def test_a_table_stays_where_it_is_taken() -> None:
    model = table("int8", "row", "zero")
    lower(model, target("ort-cpu"))
    assert [op_of(node) for node in model.graph] == ["DequantizeLinear", "Gather"]


def equal(kind: str, *, rows: bool, points: bool, spoilt: str = "") -> ir.Model:
    """W in blocks whose scales and zero points are equal along K, but for one that is spoilt."""
    model = weight(kind, "blocked", point="middle" if points else "", rows=rows)
    along = int(rows)
    for name in ("scale", "point")[: 2 if points else 1]:
        stored = model.graph.initializers[name]
        assert stored.const_value is not None
        array = np.array(stored.const_value.numpy())
        array[:] = np.take(array, [0], axis=along)
        if name == "point":
            array = array.astype(np.int64)
            array += np.arange(8).reshape((8, 1) if rows else (1, 8)) % 3
        if name == spoilt:
            array[-1, -1] += 1
        dtype = stored.const_value.dtype
        tensor = packing.integers(array, dtype) if name == "point" else ir.tensor(array)
        tensor.name = name
        stored.const_value = tensor
    return model


NO_BLOCKS: Target = toys.target(
    "DequantizeLinear | blocked | illegal",
    "DequantizeLinear | any | legal",
    "Transpose | any | legal",
    "MatMul | any | legal",
)


@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("points", [False, True], ids=["no zero point", "zero points"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
def test_equal_blocks_are_one_scale_per_channel(kind: str, points: bool, rows: bool) -> None:
    model = equal(kind, rows=rows, points=points)
    identity = {"a": np.eye(64, dtype=np.float32)[None]}
    expected = ort.run(model, identity)["y"]
    report = lower(model, NO_BLOCKS, disable=RAISING)
    assert dict(report.sites()) == {("equal_blocks_per_channel", "DequantizeLinear"): 1}
    np.testing.assert_array_equal(ort.run(model, identity)["y"], expected)


@pytest.mark.parametrize(("spoilt", "said"), [("scale", "scales"), ("point", "zero points")])
def test_blocks_that_differ_have_other_numbers_per_channel(spoilt: str, said: str) -> None:
    model = equal("uint8", rows=False, points=True, spoilt=spoilt)
    with pytest.raises(Stuck) as caught:
        lower(model, NO_BLOCKS, disable=RAISING)
    tried = {one.rule: one.reason for one in caught.value.report.stuck[0].tried}
    assert tried["equal_blocks_per_channel"] == (
        f"the {said} of its blocks differ: per channel it has other numbers"
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True], ids=["no zero point", "zero points"])
def test_matmul_nbits_per_column(bits: int, points: bool) -> None:
    model = nbits(bits=bits, zero_points="packed" if points else "")
    scales = model.graph.initializers["scales"]
    assert scales.const_value is not None
    array = np.array(scales.const_value.numpy())
    array[:] = array[:, :1]
    scales.const_value = ir.tensor(array, name="scales")
    if points:
        packed = {4: np.array([[0x33], [0x99]] * 4), 8: np.array([[7, 7], [250, 250]] * 4)}[bits]
        model.graph.initializers["points"].const_value = ir.tensor(
            packed.astype(np.uint8), name="points"
        )
    expected = ort.run(model, given(model))["y"]
    lower(model, STANDARD)
    (dequantize,) = (node for node in model.graph if node.op_type == "DequantizeLinear")
    assert "block_size" not in dequantize.attributes
    scale = dequantize.inputs[1]
    assert scale is not None
    assert scale.shape == (8,)
    assert ort.worst(expected, ort.run(model, given(model))["y"]) < 1e-6


@htp.needs_qnn
def test_a_conv_and_a_table_run_on_htp(tmp_path: Path) -> None:
    """Small, and in CI: the raised forms are placed whole and right."""
    model = conv("int8", "channel", point=True)
    expected = ort.run(model, over_points(model))
    lower(model, QNN)
    htp.check(model, over_points(model), expected, tmp_path)
    model = table("uint4", "row", "any")
    expected = ort.run(model, IDS)
    lower(model, QNN)
    htp.check(model, IDS, expected, tmp_path)
