"""Nodes of SkipLayerNormalization, and what to feed them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
ALL = ("y", "mean", "inverse", "sum")


def node(
    outputs: tuple[str, ...] = ("y",),
    *,
    weights: tuple[str, ...] = ("gamma",),
    skip_shape: tuple[int, ...] = (2, 3, 8),
    shape: tuple[int, ...] = (2, 3, 8),
    dtype: ir.DataType = F32,
    **more: float,
) -> ir.Model:
    b = Builder()
    inputs: list[ir.Value | None] = [b.input("x", dtype, shape), b.input("skip", dtype, skip_shape)]
    for name in ("gamma", "beta", "bias"):
        array = b.rng.standard_normal(8).astype(dtype.numpy())
        inputs.append(b.const(name, array) if name in weights else None)
    while inputs[-1] is None:
        inputs.pop()
    found = b.node("com.microsoft::SkipLayerNormalization", inputs, outputs, **more)
    small = (*shape[:-1], 1)
    described = zip(found, (dtype, F32, F32, dtype), (shape, small, small, shape), strict=False)
    return b.model([o for o in described if o[0].name])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    return {
        v.name or "": rng.standard_normal(v.shape.numpy()).astype(v.dtype.numpy())  # type: ignore[union-attr]  # fixed
        for v in model.graph.inputs
    }


WEIGHTS = [("gamma",), ("gamma", "beta"), ("gamma", "bias"), ("gamma", "beta", "bias")]
OUTPUTS = [("y",), ("y", "", "", "sum"), ("y", "mean"), ("y", "", "inverse"), ALL]
