"""Tiny models whose place on each runtime is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

ROWS, WIDTH = 8, 16

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Build = Callable[[tape.Tape, ir.Value], ir.Value]


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = draw(1, 1, ROWS, WIDTH)
WEIGHT = draw(2, WIDTH, WIDTH)
BIAS = draw(3, WIDTH)


def linear(x: Array) -> Array:
    """The function of `save_linear`, in double precision."""
    return (x.astype(np.float64) @ WEIGHT + BIAS).astype(np.float32)


def save_linear(path: Path, *, output: str = "y", data: str | None = None) -> Path:
    """MatMul and Add: on every runtime."""
    return _save(path, _linear, (1, ROWS, WIDTH), (1, ROWS, WIDTH), output, data)


def save_with_cpu_op(path: Path) -> Path:
    """A SkipSimplifiedLayerNormalization that QNN leaves to the CPU, nodes around it."""

    def build(graph: tape.Tape, x: ir.Value) -> ir.Value:
        skip = graph.op(
            "SkipSimplifiedLayerNormalization",
            [_linear(graph, x), x, graph.initializer(ir.tensor(BIAS, name="gamma"))],
            {"epsilon": 1e-5},
            domain="com.microsoft",
            name="block/skip norm",
        )
        return graph.op("Sigmoid", [skip], name="sigmoid")

    return _save(path, build, (1, ROWS, WIDTH), (1, ROWS, WIDTH))


def save_empty_sum(path: Path) -> Path:
    """A ReduceSum over an empty axis, which kills the process that gives it to QNN."""

    def build(graph: tape.Tape, x: ir.Value) -> ir.Value:
        axes = graph.initializer(ir.tensor(np.array([1], np.int64), name="axes"))
        return graph.op("ReduceSum", [x, axes], {"keepdims": 1}, name="sum")

    return _save(path, build, (1, 0, WIDTH), (1, 1, WIDTH))


def _linear(graph: tape.Tape, x: ir.Value) -> ir.Value:
    product = graph.op(
        "MatMul", [x, graph.initializer(ir.tensor(WEIGHT, name="weight"))], name="product"
    )
    bias = graph.initializer(ir.tensor(BIAS, name="bias"))
    return graph.op("Add", [product, bias], name="sum")


def _save(
    path: Path,
    build: Build,
    shape: Sequence[int],
    output_shape: Sequence[int],
    output: str = "y",
    data: str | None = None,
) -> Path:
    float32 = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", type=float32, shape=ir.Shape(shape))
    recorded = tape.Tape()
    y = build(recorded, x)
    y.name, y.type, y.shape = output, float32, ir.Shape(output_shape)
    graph = ir.Graph(
        [x],
        [y],
        nodes=recorded.nodes,
        initializers=recorded.initializers,
        opset_imports={"": 21, "com.microsoft": 1},
        name="tiny",
    )
    model = ir.Model(graph, ir_version=10)
    ir.save(model, path, external_data=data, size_threshold_bytes=0)
    return path
