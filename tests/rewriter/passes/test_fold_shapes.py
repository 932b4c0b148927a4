"""Shape arithmetic folds; nothing else does."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.passes.fix_dims import fix_dims
from rewriter.passes.fold_shapes import FoldShapes
from rewriter.shapes import infer_model
from tests import ort
from tests.decoders import decoder
from tests.graphs import Builder

F32, I64 = ir.DataType.FLOAT, ir.DataType.INT64


def test_the_total_length_becomes_a_constant() -> None:
    model = decoder()
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    fold = FoldShapes()
    fold(model)
    assert fold.folded == 3  # Shape, Gather, Cast
    total = model.graph.initializers["total_length"].const_value
    assert total is not None
    assert total.numpy().item() == 9
    assert total.dtype == ir.DataType.INT32


def test_nothing_folds_while_dims_are_free() -> None:
    model = decoder()
    infer_model(model)
    fold = FoldShapes()
    fold(model)
    assert fold.folded == 0


def test_values_are_those_of_the_runtime() -> None:
    b = Builder()
    x = b.input("x", F32, (2, 6))
    dims = b.op("Shape", x, name="dims")
    bounds = [b.const(name, np.array([at])) for name, at in (("start", 0), ("end", 1))]
    first = b.op("Slice", dims, *bounds, name="first")
    rest = b.op("Div", b.op("Size", x, name="size"), b.const("four", np.array([4])), name="rest")
    shape = b.op("Concat", first, rest, b.const("minus", np.array([-1])), name="shape", axis=0)
    y = b.op("Reshape", x, shape, name="y")
    model = b.model([(y, F32, (2, 3, 2))])
    given = {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}
    expected = ort.run(model, given)["y"]
    infer_model(model)
    FoldShapes()(model)
    assert [n.op_type for n in model.graph] == ["Reshape"]
    assert np.array_equal(expected, ort.run(model, given)["y"])


def test_floats_weights_and_quantization_stay() -> None:
    """D27: folding a DequantizeLinear or an Expand makes the file larger."""
    b = Builder()
    x = b.input("x", F32, (4, 4))
    codes = b.const("codes", np.ones((4, 4), np.int8))
    weight = b.op("DequantizeLinear", codes, b.const("s", np.float32(0.5)), name="weight")
    sizes = b.const("sizes", np.array([64, 64]))
    grown = b.op("Expand", b.const("one", np.ones((1,), np.int64)), sizes, name="grown")
    most = b.op("ReduceMax", grown, name="most", keepdims=0)
    factor = b.op("Cast", most, name="factor", to=1)
    y = b.op("Mul", b.op("MatMul", x, weight, name="product"), factor, name="y")
    model = b.model([(y, F32, (4, 4))])
    infer_model(model)
    before = [n.op_type for n in model.graph]
    FoldShapes()(model)
    assert [n.op_type for n in model.graph] == before


def test_an_output_of_the_graph_stays_a_node() -> None:
    b = Builder()
    x = b.input("x", F32, (2, 6))
    model = b.model([(b.op("Shape", x, name="dims"), I64, (2,))])
    infer_model(model)
    FoldShapes()(model)
    assert [n.op_type for n in model.graph] == ["Shape"]


def test_a_float_on_the_way_to_a_size_folds() -> None:
    """PyTorch takes the root of the number of patches for the side of their grid (DINOv2)."""
    b = Builder()
    x = b.input("x", F32, (1, 16, 2))
    patches, half = b.const("patches", np.float32(16)), b.const("half", np.float32(0.5))
    root = b.op("Pow", patches, half, name="root")
    count = b.op("Cast", root, name="count", to=7)
    side = b.op("Unsqueeze", count, b.const("at", np.array([0])), name="side")
    one, two = b.const("one", np.array([1])), b.const("two", np.array([2]))
    shape = b.op("Concat", one, side, side, two, name="shape", axis=0)
    model = b.model([(b.op("Reshape", x, shape, name="y"), F32, (1, 4, 4, 2))])
    infer_model(model)
    FoldShapes()(model)
    assert [n.op_type for n in model.graph] == ["Reshape"]
    given = {"x": np.arange(32, dtype=np.float32).reshape(1, 16, 2)}
    assert np.array_equal(given["x"].reshape(1, 4, 4, 2), ort.run(model, given)["y"])


def test_a_float_that_something_else_reads_stays() -> None:
    b = Builder()
    x = b.input("x", F32, (4,))
    root = b.op("Pow", b.const("four", np.float32(4)), b.const("half", np.float32(0.5)), name="r")
    whole = b.op("Cast", root, name="whole", to=7)
    y = b.op("Mul", b.op("Mul", x, root, name="m"), b.op("Cast", whole, name="c", to=1), name="y")
    model = b.model([(y, F32, (4,))])
    infer_model(model)
    FoldShapes()(model)
    assert [n.op_type for n in model.graph] == ["Pow", "Cast", "Mul", "Cast", "Mul"]
