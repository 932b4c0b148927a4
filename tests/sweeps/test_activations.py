"""Every shared decoder in integers on every QNN that has blocked weights, and the oldest too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rewriter.cli import main
from tests.shared import needs_shared
from tests.shared.quantized_activations import check_a16, written
from tests.sweeps.environments import python_of

pytestmark = [needs_shared, pytest.mark.slow]
CHECKPOINTS = {
    "llama/Q4_K_M.gguf": (),
    "llama/hf": ("--quantize", "int4"),
    "qwen3/Q4_K_M.gguf": (),
    "gemma4-e2b/Q4_K_M.gguf": (),
    "gemma4-e2b/hf": ("--quantize", "int4"),
}
"""With what makes their weights integers, where they are not."""


@pytest.mark.parametrize("version", ["2.3.0", "2.4.0", "2.7.0"])
@pytest.mark.parametrize("model", CHECKPOINTS)
def test_a16(model: str, version: str, tmp_path: Path, environments: Path) -> None:
    ep = ["--ep", f"qnn@{version}", "--seq", "8", "--activations", "a16", "--parity", "device"]
    if version != "2.7.0":  # which is installed beside the tests
        ep += ["--runtime", str(python_of(environments, f"qnn@{version}"))]
    found = written(model, tmp_path, *ep, *CHECKPOINTS[model])["graphs"]
    assert [graph["phase"] for graph in found] == ["prefill", "decode"]
    for graph in found:
        check_a16(graph)
        # blocked weights are wrong on 2.3, so they stay as MatMulNBits
        assert bool(graph["activations"]["kept"]) == (version == "2.3.0")


@pytest.mark.parametrize("model", ["llama/Q4_K_M.gguf"])
def test_a8(model: str, tmp_path: Path) -> None:
    ep = ("--ep", "qnn@2.7.0", "--seq", "8", "--activations", "a8", "--parity", "device")
    for graph in written(model, tmp_path, *ep)["graphs"]:
        assert graph["placement"]["full"]
        assert set(graph["activations"]["units"]) == {"8", "16"}
        assert all(one["ok"] for one in graph["parity"]["device_quantized"])
        assert 1e-5 < graph["activations"]["divergence"]["mean"] < 0.03


def test_parts_are_compiled(tmp_path: Path) -> None:
    """Floats between parts are what was dequantized; each part is loaded again and bit-equal."""
    report, decoder = tmp_path / "report.json", Path(__file__).parents[2] / "fixtures" / "decoder"
    words = ["--ep", "qnn", "--static", "decode", "--max-seq-len", "16", "--activations", "a16"]
    words += ["--split", "2", "--compile", "-o", str(tmp_path / "out"), "--report", str(report)]
    assert main([str(decoder), *words]) == 0
    (graph,) = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert [part["name"] for part in graph["parts"]] == ["embedding", "layers", "layers", "head"]
    assert [made["equal"] for made in graph["compiled"]] == [True] * 4
    assert set(graph["activations"]["units"]) == {"16"}
