"""Checkpoints of transformers against torch's logits: the portable graph, and what it becomes."""

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
from tests.shared import SHARED, needs_shared
from tests.steps import Steps

pytestmark = needs_shared

MODELS = SHARED / "models"
FOLDERS = [f"{name}/hf" for name in ("gemma4-e2b", "llama", "qwen3moe")]
GOLDEN = 2e-4
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]


def _golden(folder: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Ids (1, 24), and torch's logits (24, 384) of the same weights."""
    stored = np.load((MODELS / folder).parent / "golden_hf.npz")
    logits = stored["logits"][0]
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1
    return stored["input_ids"], logits


def _error(logits: npt.NDArray[Any], golden: npt.NDArray[Any]) -> float:
    assert logits.shape[1:] == golden.shape
    return float(np.abs(logits[0] - golden).max() / golden.std())


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_portable_graph_on_ort(folder: str, tmp_path: Path) -> None:
    """Whole, and as 8 tokens and then 16 single ones."""
    ids, golden = _golden(folder)
    out = tmp_path / "out"
    assert main([str(MODELS / folder), "--ep", "ort-cpu", "-o", str(out)]) == 0
    assert (out / "tokenizer.json").read_bytes() == (
        MODELS / folder / "tokenizer.json"
    ).read_bytes()
    assert _error(Steps(out / "model.onnx")(ids), golden) < GOLDEN
    steps = Steps(out / "model.onnx")
    found = [steps(ids[:, :8])] + [steps(ids[:, i : i + 1]) for i in range(8, 24)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "openvino@2026.4.1"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_prompt_and_tokens_from_one_folder(folder: str, ep: str, tmp_path: Path) -> None:
    """Both graphs of a fixed cache: placed whole, one weight file, and the golden logits on ORT."""
    ids, golden = _golden(folder)
    out, report = tmp_path / "out", tmp_path / "report.json"
    words = [str(MODELS / folder), "--ep", ep, "-o", str(out), "--report", str(report)]
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
    prompt, token = Steps(out / "prefill.onnx"), Steps(out / "decode.onnx")
    found = [prompt(ids[:, :8])]
    token.take(prompt)
    found += [token(ids[:, i : i + 1]) for i in range(8, 24)]
    assert _error(np.concatenate(found, axis=1), golden) < GOLDEN


@pytest.mark.parametrize("ep", [*VERSIONS, "onnx-standard"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_stuck_or_unknown_at_any_version(folder: str, ep: str) -> None:
    for tokens in (1, 8):
        model: ir.Model = read(MODELS / folder)
        fix_dims(model, {"batch": 1, "seq": tokens, "past": 32, "total": 32})
        report = plan(model, target(ep))
        assert not report.stuck, [str(node) for node in report.stuck]
        assert not report.unknown
