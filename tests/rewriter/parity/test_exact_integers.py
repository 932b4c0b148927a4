"""The oracle of products of integers: exact on every processor, and the same function."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from rewriter.parity.settings import drop_accuracy_level
from tests import ort
from tests.graphs import Builder

RNG = np.random.default_rng(1)
GIVEN = {"x": RNG.integers(0, 256, (5, 64)).astype(np.uint8)}
EXTREME = RNG.choice([-128, -127, 126, 127], (64, 8)).astype(np.int8)
"""Codes whose products saturate wherever a kernel adds two of them in 16 bits."""


def _product(points: tuple[int, ...] | None, weight: Any = EXTREME) -> ir.Model:
    b = Builder()
    inputs: list[ir.Value | None] = [
        b.input("x", ir.DataType.UINT8, (5, 64)),
        b.const("w", weight),
        b.const("zx", np.uint8(9)),
    ]
    if points is not None:
        inputs.append(b.const("z", RNG.integers(-9, 9, points).astype(weight.dtype)))
    return b.model([(b.op("MatMulInteger", *inputs, name="y"), ir.DataType.INT32, (5, 8))])


@pytest.mark.parametrize("points", [None, (), (8,)])
def test_no_product_saturates(points: tuple[int, ...] | None) -> None:
    model = _product(points)
    expected: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, GIVEN)
    assert drop_accuracy_level(model) == 1
    assert next(iter(model.graph)).inputs[1].dtype == ir.DataType.UINT8  # type: ignore[union-attr]  # it is given
    assert np.array_equal(expected[0], ort.run(model, GIVEN)["y"])


def test_a_convolution() -> None:
    b = Builder()
    x = b.input("x", ir.DataType.UINT8, (1, 16, 5, 5))
    w = b.const("w", RNG.choice([-128, 127], (4, 16, 3, 3)).astype(np.int8))
    model = b.model([(b.op("ConvInteger", x, w, name="y"), ir.DataType.INT32, (1, 4, 3, 3))])
    given = {"x": RNG.integers(128, 256, (1, 16, 5, 5)).astype(np.uint8)}
    expected: Any = ReferenceEvaluator(ir.to_proto(model)).run(None, given)
    assert drop_accuracy_level(model) == 1
    assert np.array_equal(expected[0], ort.run(model, given)["y"])


def test_a_contrib_op_is_what_its_parts_are() -> None:
    """DynamicQuantizeMatMul against DynamicQuantizeLinear and MatMulInteger in onnx's reference."""
    b, parts = Builder(), Builder()
    scale = np.float32(0.02)
    x = b.input("x", ir.DataType.FLOAT, (5, 64))
    inputs = (x, b.const("w", EXTREME), b.const("s", scale))
    y = b.op("com.microsoft::DynamicQuantizeMatMul", *inputs, name="y")
    model = b.model([(y, ir.DataType.FLOAT, (5, 8))])
    x = parts.input("x", ir.DataType.FLOAT, (5, 64))
    q, s, z = parts.node("DynamicQuantizeLinear", [x], ["q", "s", "z"])
    product = parts.op("MatMulInteger", q, parts.const("w", EXTREME), z, name="product")
    number = parts.op("Cast", product, name="number", to=1)
    scales = parts.op("Mul", s, parts.const("ws", scale), name="scales")
    written = parts.op("Mul", number, scales, name="y")
    whole = parts.model([(written, ir.DataType.FLOAT, (5, 8))])
    given = {"x": RNG.standard_normal((5, 64)).astype(np.float32)}
    expected: Any = ReferenceEvaluator(ir.to_proto(whole)).run(None, given)
    assert drop_accuracy_level(model) == 1
    assert ort.worst(expected[0], ort.run(model, given)["y"]) < 1e-5


def test_unsigned_weights_stay() -> None:
    weight = (EXTREME.astype(np.int16) + 128).astype(np.uint8)
    assert drop_accuracy_level(_product((), weight)) == 0
