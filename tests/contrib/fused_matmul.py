"""Nodes of FusedMatMul."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from tests.graphs import Builder

F32 = ir.DataType.FLOAT
Shape = tuple[int, ...]


def node(
    a: Shape, b: Shape, y: Shape, dtype: ir.DataType = F32, *, op: str = "FusedMatMul", **more: Any
) -> ir.Model:
    graph = Builder()
    inputs = [graph.input(name, dtype, shape) for name, shape in (("a", a), ("b", b))]
    found = graph.op(f"com.microsoft::{op}", *inputs, name="y", **more)
    return graph.model([(found, dtype, y)])


PLAIN: list[tuple[Shape, Shape, Shape, dict[str, Any]]] = [
    ((2, 3), (3, 4), (2, 4), {}),
    ((2, 3), (3, 4), (2, 4), {"alpha": 0.125}),
    ((3, 2), (3, 4), (2, 4), {"transA": 1, "alpha": -2.0}),
    ((5, 2, 3), (5, 4, 3), (5, 2, 4), {"transB": 1}),
    ((1, 2, 3, 5), (1, 2, 4, 3), (1, 2, 5, 4), {"transA": 1, "transB": 1, "alpha": 0.5}),
    ((5, 2, 3), (4, 3), (5, 2, 4), {"transB": 1}),
    ((3,), (3, 4), (4,), {"transA": 1}),
    ((2, 3), (3,), (2,), {"transB": 1}),
]
BATCHES: list[tuple[Shape, Shape, Shape, dict[str, Any]]] = [
    ((2, 5, 3), (5, 3, 4), (5, 2, 4), {"transBatchA": 1}),
    ((5, 2, 3), (3, 5, 4), (5, 2, 4), {"transBatchB": 1, "alpha": 0.5}),
    ((2, 5, 3), (3, 5, 4), (5, 2, 4), {"transBatchA": 1, "transBatchB": 1}),
    ((3, 5, 2), (5, 3, 4), (5, 2, 4), {"transBatchA": 1, "transA": 1}),
    ((2, 5, 6, 3), (4, 5, 6, 3), (5, 6, 2, 4),
     {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
]  # fmt: skip
