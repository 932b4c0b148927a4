"""Compiled contexts made by hand, so that checking them needs no compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.compiling.stamp import Stamp, digests
from tests.rewriter.runtime.models import save_linear

BINARY = b"what a compiler made of it"


def context(binary: str = "m_ctx_qnn.bin", embed: int = 0) -> ir.Model:
    """A graph of one EPContext."""
    float32 = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", type=float32, shape=ir.Shape((1, 8, 16)))
    node = ir.node(
        "EPContext",
        [x],
        {"embed_mode": embed, "ep_cache_context": binary, "main_context": 1},
        domain="com.microsoft",
    )
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", float32, ir.Shape((1, 8, 16))
    graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 21, "com.microsoft": 1}, name="c")
    return ir.Model(graph, ir_version=10)


def folder(home: Path, version: str = "2.6.0", soc: str = "60") -> Path:
    """A folder of graph, weights, context and binary; gives the context's file."""
    source = save_linear(home / "m.onnx", data="model.onnx.data")
    (home / "m_ctx_qnn.bin").write_bytes(BINARY)
    model = context()
    Stamp(
        source=source.name,
        files=digests([source, home / "model.onnx.data"]),
        binaries=digests([home / "m_ctx_qnn.bin"]),
        bytes={"m_ctx_qnn.bin": len(BINARY)},
        soc=soc,
        options={"vtcm_mb": "8", "op_affinity": "{}"},
        versions={"onnxruntime-qnn": version},
    ).note(model)
    ir.save(model, home / "m_ctx.onnx")
    return home / "m_ctx.onnx"


def flip(path: Path, at: int = -1) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def zeros(path: Path) -> Path:
    """A graph whose output is all zeros."""
    float32 = ir.TensorType(ir.DataType.FLOAT)
    x = ir.Value(name="x", type=float32, shape=ir.Shape((1, 8, 16)))
    zero = ir.Value(name="zero", const_value=ir.tensor(np.zeros(1, np.float32), name="zero"))
    node = ir.node("Mul", [x, zero])
    y = node.outputs[0]
    y.name, y.type, y.shape = "y", float32, ir.Shape((1, 8, 16))
    graph = ir.Graph(
        [x], [y], nodes=[node], initializers=[zero], opset_imports={"": 21}, name="zeros"
    )
    ir.save(ir.Model(graph, ir_version=10), path)
    return path
