"""Nodes of BiasAdd and BiasSplitGelu."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tests.graphs import Builder

F32 = ir.DataType.FLOAT
RNG = np.random.default_rng(1)
X, SKIP = (RNG.standard_normal((2, 4, 16)).astype(np.float32) for _ in range(2))
BIAS = RNG.standard_normal(16).astype(np.float32)


def node(op: str, width: int = 16) -> ir.Model:
    b = Builder()
    inputs = [b.input("x", F32, (2, 4, width)), b.const("bias", BIAS[:width])]
    out = width
    if op == "BiasAdd":
        inputs.append(b.input("skip", F32, (2, 4, width)))
    else:
        out = width // 2
    y = b.op(f"com.microsoft::{op}", *inputs, name="y")
    return b.model([(y, F32, (2, 4, out))])


OPS = ["BiasAdd", "BiasSplitGelu"]
