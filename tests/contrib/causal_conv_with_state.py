"""Nodes of CausalConvWithState, as LFM2 and Qwen 3.5 have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

F32 = ir.DataType.FLOAT
CHANNELS, KERNEL = 8, 3


def node(
    tokens: int = 4,
    *,
    past: bool = True,
    bias: bool = False,
    dilation: int = 1,
    kernel: int = KERNEL,
    **attributes: Any,
) -> ir.Model:
    """One node of 8 channels behind a state of (kernel - 1)·dilation columns."""
    b = Builder()
    state = (2, CHANNELS, (kernel - 1) * dilation)
    x = b.input("x", F32, (2, CHANNELS, tokens))
    weight = b.const("w", b.rng.standard_normal((CHANNELS, 1, kernel)).astype(np.float32))
    shift = b.const("b", b.rng.standard_normal(CHANNELS).astype(np.float32)) if bias else None
    inputs = [x, weight, shift, b.input("past", F32, state) if past else None]
    if dilation != 1:
        attributes["dilation"] = dilation
    op = "com.microsoft::CausalConvWithState"
    y, present = b.node(op, inputs, ["y", "present"], **attributes)
    return b.model([(y, F32, (2, CHANNELS, tokens)), (present, F32, state)])


def feeds(model: ir.Model) -> dict[str, Any]:
    """For its inputs."""
    rng = np.random.default_rng(1)
    return {
        str(value.name): rng.standard_normal(value.shape.numpy()).astype(np.float32)
        for value in model.graph.inputs
        if value.shape is not None
    }
