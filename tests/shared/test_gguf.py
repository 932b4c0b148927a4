"""GGUF files against llama.cpp's and torch's logits: the portable graph, and what it becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from capabilities import eps, target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import plan
from rewriter.passes.fix_dims import fix_dims
from tests.quick import slow_but
from tests.shared import needs_shared
from tests.shared.files import GGUF_FILES, MODELS
from tests.steps import Steps

pytestmark = needs_shared

GOLDEN = 2e-4
_KINDS = ("llama", "phi3", "gemma3", "gemma4-e2b", "qwen3moe")
KINDS = [f for f in GGUF_FILES if f in {f"{name}/Q4_K_M.gguf" for name in _KINDS}]
"""Plain, packed projections, windows, everything, experts: what others have is in one of them."""
PLACED = [file for file in KINDS if not file.startswith(("phi3", "gemma3/"))]
"""Those that differ in the ops that a device gets."""
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]


def _golden(file: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Ids (1, 24), and logits of the same weights.

    Torch's for Gemma, where llama.cpp's GELU is a table.
    """
    path = MODELS / file
    torch = dict(np.load(path.parent / "golden_hf.npz"))
    exact = path.parent / "golden_hf_dequant.npz"
    stored = np.load(exact if exact.exists() else path.parent / "golden_llamacpp.npz")
    logits = stored[path.stem] if path.stem in stored else torch["logits"][0]
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1
    return torch["input_ids"], logits


def _error(logits: npt.NDArray[Any], golden: npt.NDArray[Any]) -> float:
    assert logits.shape[1:] == golden.shape
    return float(np.abs(logits[0] - golden).max() / golden.std())


@pytest.mark.parametrize("file", GGUF_FILES)
def test_the_portable_graph_on_ort(file: str, tmp_path: Path) -> None:
    """Whole, and as 8 tokens and then 16 single ones."""
    ids, golden = _golden(file)
    out = tmp_path / "out"
    assert main([str(MODELS / file), "--ep", "ort-cpu", "-o", str(out)]) == 0
    assert _error(Steps(out / "model.onnx")(ids), golden) < GOLDEN
    steps = Steps(out / "model.onnx")
    found = [steps(ids[:, :8])] + [steps(ids[:, i : i + 1]) for i in range(8, 24)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "openvino@2026.4.1"])
@pytest.mark.parametrize("file", slow_but(PLACED, GGUF_FILES))
def test_prompt_and_tokens_from_one_folder(file: str, ep: str, tmp_path: Path) -> None:
    """Both graphs of a fixed cache: placed whole, one weight file, and the golden logits on ORT."""
    ids, golden = _golden(file)
    out, report = tmp_path / "out", tmp_path / "report.json"
    words = [str(MODELS / file), "--ep", ep, "-o", str(out), "--report", str(report)]
    words += ["--static", "both", "--seq", "8", "--max-seq-len", "32"]
    words += ["--parity", "device" if ep.startswith("openvino") else "model"]
    assert main(words) == 0
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert [graph["phase"] for graph in graphs] == ["prefill", "decode"]
    for graph in graphs:
        assert graph["stuck"] == graph["unknown"] == []
        assert graph["placement"]["on_cpu"] == 0
        assert graph["placement"]["partitions"] == 1
        for output in (graph["parity"]["device"] or {"outputs": []})["outputs"]:
            assert output["max_std"] < 1e-4, output
    weights = {path.name: path.stat().st_size for path in out.glob("*.data")}
    assert weights.pop("model.onnx.data") > 20 * sum(weights.values())
    prompt, token = Steps(out / "prefill.onnx"), Steps(out / "decode.onnx")
    found = [prompt(ids[:, :8])]
    token.take(prompt)
    found += [token(ids[:, i : i + 1]) for i in range(8, 24)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("ep", [*VERSIONS, "onnx-standard"])
@pytest.mark.parametrize("file", slow_but(PLACED, [f for f in GGUF_FILES if "Q4_K_M" in f]))
def test_nothing_is_stuck_or_unknown_at_any_version(file: str, ep: str) -> None:
    for tokens in (1, 8):
        model: ir.Model = read(MODELS / file)
        fix_dims(model, {"batch": 1, "seq": tokens, "past": 32, "total": 32})
        report = plan(model, target(ep))
        assert not report.stuck, [str(node) for node in report.stuck]
        assert not report.unknown
