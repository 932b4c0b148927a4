"""Half precision emulated in float32, against numpy's own float16."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.parity.half import FUNCTION_BITS, in_half
from tests import ort
from tests.graphs import Builder
from tests.rewriter.parity.halves import F32, typed

RNG = np.random.default_rng(0)


def rounded(x: np.ndarray) -> np.ndarray:
    """As float16 stores it."""
    return x.astype(np.float16).astype(np.float32)


def test_every_value_is_rounded_once() -> None:
    b = Builder()
    w, v = (RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    x = b.input("x", F32, (2, 4))
    y = b.op("Mul", b.op("MatMul", x, b.const("w", w), name="m"), b.const("v", v[0]), name="y")
    model = typed(b.model([(y, F32, (2, 4))]))
    given = RNG.standard_normal((2, 4)).astype(np.float32)
    expected = rounded(rounded(given) @ rounded(w)) * rounded(v[0])
    np.testing.assert_array_equal(ort.run(in_half(model), {"x": given})["y"], expected)
    assert not np.array_equal(ort.run(model, {"x": given})["y"], expected)


def test_the_lowest_float_still_hides_and_makes_no_nan() -> None:
    """Only one of two values is seen, and it is 1 exactly: nothing else is left of the function."""
    b = Builder()
    x = b.input("x", F32, (1, 2))
    mask = b.const("mask", np.array([[0, np.finfo(np.float32).min]], np.float32))
    y = b.op("Softmax", b.op("Add", x, mask, name="masked"), name="y")
    model = in_half(typed(b.model([(y, F32, (1, 2))])))
    found = ort.run(model, {"x": np.zeros((1, 2), np.float32)})["y"]
    assert found.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(("op", "function"), [("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
                                              ("Tanh", np.tanh)])  # fmt: skip
def test_functions_are_off_by_their_bits(op: str, function) -> None:  # type: ignore[no-untyped-def]  # arguments of pytest
    b = Builder()
    x = b.input("x", F32, (1, 512))
    y = b.op("Relu", b.op(op, x, name="f"), name="y")
    given = rounded(np.linspace(0.1, 6, 512, dtype=np.float32)[None])
    found = ort.run(in_half(typed(b.model([(y, F32, (1, 512))]))), {"x": given})["y"]
    error = np.abs(found - function(given.astype(np.float64)))
    size = 2.0 ** -FUNCTION_BITS[op]
    assert 0.9 * size < error.max() < size + 2**-11
    assert math.isclose(float(np.sqrt((error**2).mean())), size / 2**0.5, rel_tol=0.3)


def test_what_lies_in_branches_is_rounded_too() -> None:
    b = Builder()
    x = b.input("x", F32, (1, 1))
    node = ir.node("Sqrt", [x])
    node.outputs[0].name = "root"
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(F32), ir.Shape([1, 1])
    cube = ir.node("Mul", [node.outputs[0], node.outputs[0]])
    cube.outputs[0].name = "cube"
    cube.outputs[0].type, cube.outputs[0].shape = ir.TensorType(F32), ir.Shape([1, 1])
    graphs = [ir.Graph([], cube.outputs, nodes=[node, cube], name="then")]
    other = ir.node("Neg", [x])
    other.outputs[0].name = "neg"
    graphs.append(ir.Graph([], other.outputs, nodes=[other], name="other"))
    y = b.op("If", b.const("yes", np.array(True)), name="y",
             then_branch=graphs[0], else_branch=graphs[1])  # fmt: skip
    model = in_half(b.model([(y, F32, (1, 1))]))
    root = rounded(np.sqrt(np.full((1, 1), 3, np.float32)))
    assert ort.run(model, {"x": np.full((1, 1), 3, np.float32)})["y"] == root * root
