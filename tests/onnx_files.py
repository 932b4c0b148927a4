"""A toy ONNX file to damage, and the sentence that reading it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import frontends
from rewriter.errors import BadInput
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def toy() -> onnx.ModelProto:
    """Relu of x (1, 8) times w (8, 80)."""
    b = Builder()
    x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones((8, 80), np.float32))
    z = b.op("Relu", b.op("MatMul", x, w, name="y"), name="z")
    return ir.to_proto(b.model([(z, F32, (1, 80))]))


def fault(path: Path, proto: onnx.ModelProto | bytes) -> str:
    """The one sentence that reading a file gives."""
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        frontends.read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(f"{path}: ")
