"""Widening: nothing of a half is left, whatever holds it, and no number changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from rewriter.parity.widen import HALVES, NotWidenable, half_of, widened, widened_array
from tests import ort
from tests.graphs import Builder
from tests.rewriter.parity.halves import BF16, F16, F32, halved

X = np.array([[0.1, -2.0, 3.0]], np.float16)


def model_of(*outputs: ir.Value, b: Builder, opset: int = 23, dtype: ir.DataType = F16) -> ir.Model:
    """A model with outputs of one type."""
    return b.model([(value, dtype, [None] * 2) for value in outputs], opset)


def types_in(proto: object) -> Iterator[int]:
    """Every element type that a protobuf message speaks of, wherever it is in it."""
    assert isinstance(proto, onnx.ModelProto)
    waiting: list[object] = [proto]
    while waiting:
        message = waiting.pop()
        if isinstance(message, onnx.TensorProto):
            yield message.data_type
        elif isinstance(message, onnx.TypeProto.Tensor):
            yield message.elem_type
        elif isinstance(message, onnx.AttributeProto) and message.name in {
            "to", "dtype", "output_dtype", "softmax_precision", "stash_type", "precision",
        }:  # fmt: skip
            yield message.i
        for field, value in message.ListFields():  # type: ignore[attr-defined]  # protobuf's stub does not know it
            if field.message_type is not None:
                waiting += list(value) if field.is_repeated else [value]


def test_a_cast_no_longer_rounds() -> None:
    """1 + 2^-12 is 1 in float16."""
    b = Builder()
    x = b.input("x", F32, (1, 1))
    y = b.op("Cast", b.op("Cast", x, name="narrow", to=int(F16)), name="y", to=int(F32))
    model = model_of(y, b=b, dtype=F32)
    given = {"x": np.array([[1 + 2**-12]], np.float32)}
    assert half_of(model) == F16
    assert ort.run(model, given)["y"].tolist() == [[1.0]]
    assert ort.run(widened(model), given)["y"].tolist() == [[1 + 2**-12]]
    assert ort.run(model, given)["y"].tolist() == [[1.0]], "the model itself was left alone"


def test_everything_that_names_or_holds_a_half() -> None:
    """Constants, fills, random numbers, dequantized ones, a branch, and what is declared."""
    b = Builder()
    x = b.input("x", F16, (1, 3))
    stored = b.const("stored", np.array([0.1, 0.2, 0.3], np.float16))
    inline = b.op("Constant", name="inline", value=ir.tensor(np.array([2.5], np.float16)))
    shape = b.const("shape", np.array([1, 3]))
    fill = ir.tensor(np.array([0.5], np.float16))
    filled = b.op("ConstantOfShape", shape, name="filled", value=fill)
    eye = b.op("EyeLike", b.const("like", np.zeros((1, 3), np.float32)), name="e", dtype=int(F16))
    codes = b.const("codes", np.array([[1, 2, 3]], np.int8))
    scale = b.const("scale", np.array(0.25, np.float16))
    dq = b.op("DequantizeLinear", codes, scale, name="dq", output_dtype=int(F16))
    then, other = (
        ir.Graph([], [n.outputs[0]], nodes=[n], name=name)
        for name, number in (("then", 7.0), ("other", 8.0))
        for n in [ir.node("Constant", [], {"value": ir.tensor(np.array([number], np.float16))})]
    )
    for branch in (then, other):
        branch.outputs[0].name = f"{branch.name}/y"
        branch.outputs[0].type, branch.outputs[0].shape = ir.TensorType(F16), ir.Shape([1])
    picked = b.op("If", b.const("yes", np.array(True)), name="picked",
                  then_branch=then, else_branch=other)  # fmt: skip
    y = x
    for i, value in enumerate((stored, inline, filled, eye, dq, picked)):
        y = b.op("Add", y, value, name=f"y{i}")
    model = model_of(y, b=b)
    wide = widened(model)
    expected = X.astype(np.float32) + np.array([[0.1, 0.2, 0.3]], np.float16).astype(np.float32)
    expected += np.array([[1.25, 0.5, 0.75]], np.float32) + 2.5 + 0.5 + 7.0
    found = ort.run(wide, {"x": widened_array(X)})["y5"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert half_of(wide) is None
    assert not {int(half) for half in HALVES} & set(types_in(ir.to_proto(wide)))
    assert int(F16) in set(types_in(ir.to_proto(model))), "the search finds what there is"


def test_norm_and_attention_compute_in_float32() -> None:
    b = Builder()
    q = b.input("q", F16, (1, 2, 4, 8))
    norm = b.op("RMSNormalization", q, b.const("gain", np.ones(8, np.float16)), name="norm",
                stash_type=16)  # fmt: skip
    y = b.op("Attention", norm, norm, norm, name="y", softmax_precision=10)
    model = b.model([(y, F16, (1, 2, 4, 8))], 23)
    types = set(types_in(ir.to_proto(widened(model))))
    assert not types & {int(F16), int(BF16)}
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype(np.float16)
    found = ort.run(widened(model), {"q": widened_array(x)})["y"]
    wide = x.astype(np.float64)
    n = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-5)
    scores = n @ n.swapaxes(-1, -2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ n
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_functions_are_inlined() -> None:
    x = ir.Value(name="fx")
    cast = ir.node("Cast", [x], {"to": int(F16)})
    body = ir.Graph([x], cast.outputs, nodes=[cast], opset_imports={"": 23})
    function = ir.Function("local", "Half", graph=body, attributes=[])
    b = Builder()
    given = b.input("x", F32, (1, 1))
    call = b.op("local::Half", given, name="h")
    out = b.op("Cast", call, name="y", to=int(F32))
    model = model_of(out, b=b, dtype=F32)
    model.graph.opset_imports["local"] = 1
    model.functions[function.identifier()] = function
    assert half_of(model) == F16
    fed = {"x": np.array([[1 + 2**-12]], np.float32)}
    assert ort.run(widened(model), fed)["y"].tolist() == [[1 + 2**-12]]


def test_bfloat16_is_the_coarser_and_exact_too() -> None:
    b = Builder()
    y = b.op(
        "Mul",
        b.input("x", F32, (1, 3)),
        b.const("w", np.array([[1, 0.1, 3]], np.float32)),
        name="y",
    )
    model = halved(model_of(y, b=b, dtype=F32), BF16)
    stored = model.graph.initializers["w"].const_value
    assert stored is not None
    assert half_of(model) == BF16
    wide = ort.run(widened(model), {"x": np.ones((1, 3), np.float32)})["y"]
    assert wide.tolist() == stored.numpy().astype(np.float32).tolist()
    assert wide[0, 1] != np.float32(0.1)


def test_constants_are_read_late() -> None:
    b = Builder()
    b.op("Neg", b.input("x", F16, (1,)), name="n")

    def read() -> ir.TensorProtocol:
        raise AssertionError("read")

    weight = b.const("w", ir.LazyTensor(read, F16, ir.Shape([1 << 20])))
    model = model_of(b.op("Neg", weight, name="y"), b=b)
    tensor = widened(model).graph.initializers["w"].const_value
    assert tensor is not None
    assert tensor.nbytes == 4 << 20


def test_bits_are_no_numbers() -> None:
    b = Builder()
    y = b.op("BitCast", b.input("x", F16, (1, 3)), name="y", to=int(ir.DataType.INT16))
    with pytest.raises(NotWidenable, match="BitCast 'y/BitCast'"):
        widened(model_of(y, b=b, opset=26))


def test_float32_has_no_half() -> None:
    b = Builder()
    model = model_of(b.op("Neg", b.input("x", F32, (1, 3)), name="y"), b=b, dtype=F32)
    assert half_of(model) is None
