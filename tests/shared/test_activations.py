"""A real decoder in integers; other models and versions: ``pytest -m slow tests/sweeps``."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from rewriter.cli import main
from tests.htp import needs_qnn
from tests.shared import needs_shared
from tests.shared.quantized_activations import check_a16, default_configuration, written

pytestmark = [needs_shared, needs_qnn]
LLAMA = "llama/Q4_0.gguf"
DECODE = ("--ep", "qnn", "--static", "decode")


def test_llama_computes_in_integers_and_beats_the_default_configuration(tmp_path: Path) -> None:
    asked = (*DECODE, "--activations", "a16", "--parity", "device")
    (graph,) = written(LLAMA, tmp_path, *asked)["graphs"]
    check_a16(graph)
    assert graph["activations"]["weights"] == {
        "int4 in blocks of 32": 28,
        "int8 in blocks of 16": 1,
    }
    assert "NOT TEXT" in graph["activations"]["calibrated"]
    floats = tmp_path / "floats"
    floats.mkdir()
    written(LLAMA, floats, *DECODE, "--parity", "none", "--no-place")
    default = default_configuration(floats / "out" / "decode.onnx", tmp_path)
    assert graph["activations"]["divergence"]["mean"] < default.mean / 100
    assert default.mean < 1


def test_its_own_result_stays_as_it_is(tmp_path: Path) -> None:
    """What was written is legal: nothing is lowered or fused again."""
    asked = (*DECODE, "--activations", "a16", "--parity", "none", "--no-place")
    written(LLAMA, tmp_path, *asked)
    first, second = tmp_path / "out" / "decode.onnx", tmp_path / "again" / "model.onnx"
    ep = ("--ep", "qnn", "--parity", "none", "--no-place")
    assert main([str(first), *ep, "-o", str(second.parent)]) == 0
    nodes = [[(n.op_type, n.name) for n in ir.load(file).graph] for file in (first, second)]
    assert nodes[0] == nodes[1]
    assert "QuantizeLinear" in {op for op, _ in nodes[0]}
