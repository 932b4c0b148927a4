"""The llama of ``../shared/models`` as a static pair, compiled for HTP and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from rewriter import placement
from rewriter.cli import main
from rewriter.compiling import check_context, compile_graph
from rewriter.runtime.versions import installed
from tests.shared import SHARED, needs_shared

LLAMA = SHARED / "models" / "llama"

pytestmark = [
    needs_shared,
    pytest.mark.skipif(installed("qnn") is None, reason="needs onnxruntime-qnn"),
    pytest.mark.skipif(not placement.emulated(), reason="a device has its own SoC"),
]


def feeds(file: Path) -> dict[str, Any]:
    """Random caches, half of them filled, and tokens after that."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for value in ir.load(file).graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = tuple(value.shape.numpy())
        if value.name == "attention_mask":
            array: Any = np.arange(shape[-1])[None] < shape[-1] // 2
        elif value.dtype == ir.DataType.FLOAT:
            array = rng.standard_normal(shape)
        else:
            array = 1 + np.arange(np.prod(shape)).reshape(shape)
        found[str(value.name)] = array.astype(value.dtype.numpy())
    return found


@pytest.mark.parametrize("name", ["Q4_0.gguf", "f32.gguf"])
def test_both_graphs_are_compiled_and_equal(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(LLAMA / name), "--ep", "qnn", "--static", "both", "--seq", "8"]
    words += ["--max-seq-len", "32", "--parity", "none", "--no-place", "-o", str(out)]
    assert main(words) == 0
    for phase in ("prefill", "decode"):
        file = out / f"{phase}.onnx"
        found = compile_graph(file, options={}, soc="SC8380XP", feeds=[feeds(file)])
        assert found.equal
        assert found.nodes > 100
        checked = check_context(found.context, version=installed("qnn"), soc="60")
        assert checked.stamp is not None
        assert set(checked.stamp.files) == {file.name, "model.onnx.data"}
        source, context = ir.load(file), ir.load(found.context)
        assert source.metadata_props.items() <= context.metadata_props.items()
    made = {path.name for path in out.iterdir() if "_ctx" in path.name}
    assert made == {
        "prefill_ctx.onnx", "prefill_ctx_qnn.bin", "decode_ctx.onnx", "decode_ctx_qnn.bin"
    }  # fmt: skip
