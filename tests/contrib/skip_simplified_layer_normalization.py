"""Nodes of SkipSimplifiedLayerNormalization, and what to feed them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
OUTPUTS = [("y",), ("y", "", "", "sum"), ("y", "", "inverse"), ("y", "", "inverse", "sum")]


def node(
    outputs: tuple[str, ...] = ("y",),
    *,
    skip_shape: tuple[int, ...] = (2, 3, 8),
    bias: bool = False,
    **more: float,
) -> ir.Model:
    b = Builder()
    inputs: list[ir.Value | None] = [b.input("x", F32, (2, 3, 8)), b.input("skip", F32, skip_shape)]
    for name, given in (("gamma", True), ("bias", bias)):
        array = b.rng.standard_normal(8).astype(np.float32)
        inputs.append(b.const(name, array) if given else None)
    found = b.node("com.microsoft::SkipSimplifiedLayerNormalization", inputs, outputs, **more)
    shapes = ((2, 3, 8), (2, 3, 1), (2, 3, 1), (2, 3, 8))
    return b.model([(v, F32, s) for v, s in zip(found, shapes, strict=False) if v.name])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(np.float32)  # type: ignore[union-attr]  # fixed
        for v in model.graph.inputs
    }
