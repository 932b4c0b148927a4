"""The files with mixtures of experts, as :mod:`tests.shared.test_exporters` has the others.

The builder's Gemma 4 has an activation (geglu) that ORT CPU does not run, so there is no original
to compare with: its goldens are torch's logits, and those of the same file with its MoE written
out in ops by whoever made it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capabilities import eps, target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import lower, plan
from rewriter.parity.settings import DEVICE_MAX, DEVICE_RMS
from rewriter.passes.fix_dims import fix_dims
from tests import htp, ort
from tests.shared import needs_shared
from tests.shared.files import (
    DECODE,
    ONNX,
    PREFILL,
    empty_past,
    lowered,
    token_by_token,
)

pytestmark = needs_shared

QNN = "qnn@2.7.0"
GEMMA = "genai/gemma4_moe/fp32_fullkv"
NODES = ["qmoe_b2_bs0_zp0", "qmoe_b4_bs64_zp0", "qmoe_b8_bs0_zp1"]
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]


def report_of(*words: str, folder: Path) -> dict[str, Any]:
    report = folder / "report.json"
    assert main([*words, "-o", str(folder / "out"), "--report", str(report)]) == 0
    (graph,) = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert graph["stuck"] == graph["unknown"] == []
    found: dict[str, Any] = graph
    return found


@pytest.mark.parametrize("node", NODES)
def test_a_node_runs_whole_on_htp(node: str, tmp_path: Path) -> None:
    source = str(ONNX / "qmoe" / f"{node}.onnx")
    graph = report_of(source, "--ep", QNN, "--parity", "device", folder=tmp_path)
    placement = graph["placement"]
    assert (placement["on_cpu"], placement["partitions"], placement["full"]) == (0, 1, True)
    (exact,), (device,) = (graph["parity"][side]["outputs"] for side in ("model", "device"))
    assert exact["max_std"] < 1e-5
    assert 1e-5 < device["max_std"] <= DEVICE_MAX
    assert device["rms_std"] <= DEVICE_RMS


@pytest.mark.parametrize("ep", [QNN, "openvino@2024.6.0", "onnx-standard"])
@pytest.mark.parametrize("node", NODES)
def test_goldens_of_a_node(node: str, ep: str) -> None:
    golden = dict(np.load(ONNX / "qmoe" / f"{node}.npz"))
    model = read(ONNX / "qmoe" / f"{node}.onnx")
    lower(model, target(ep))
    found = ort.run(model, golden)["y"]
    assert ort.worst(golden["y"], found) < 2e-6


@pytest.mark.parametrize("ep", [*VERSIONS, "onnx-standard"])
@pytest.mark.parametrize("file", [*(f"qmoe/{node}.onnx" for node in NODES), f"{GEMMA}/model.onnx"])
def test_nothing_is_stuck_or_unknown_at_any_version(file: str, ep: str) -> None:
    for dims in (DECODE, PREFILL) if file.startswith("genai") else ({},):
        model = read(ONNX / file)
        fix_dims(model, dims)
        report = plan(model, target(ep))
        assert not report.stuck, [str(node) for node in report.stuck]
        assert not report.unknown


@pytest.mark.parametrize("dims", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_gemma_runs_whole_on_htp(dims: dict[str, int], tmp_path: Path) -> None:
    """Its original does not run, so the report has no parity; the goldens below do that."""
    words = [f"--dim={name}={value}" for name, value in dims.items()]
    source = str(ONNX / GEMMA / "model.onnx")
    graph = report_of(source, "--ep", QNN, *words, "--parity", "none", folder=tmp_path)
    placement = graph["placement"]
    assert (placement["on_cpu"], placement["partitions"], placement["full"]) == (0, 1, True)


@pytest.mark.parametrize("ep", [QNN, "openvino@2025.0.0", "onnx-standard"])
@pytest.mark.parametrize("golden", ["golden_hf.npz", "fp32_fullkv/golden_decomposed.npz"])
def test_gemma_token_by_token(golden: str, ep: str) -> None:
    folder = ONNX / "genai" / "gemma4_moe"
    expected, ids = np.load(folder / golden), np.load(folder / "golden_hf.npz")
    found = token_by_token(GEMMA, ep, ids["input_ids"], ids["decode_ids"])
    std = expected["prefill_logits"].std()
    assert np.abs(found[0] - expected["prefill_logits"]).max() < 2e-5 * std
    decoded = np.concatenate(found[1:], axis=1)
    assert np.abs(decoded - expected["decode_logits"]).max() < 2e-5 * std


@htp.needs_qnn
def test_gemma_prefill_on_htp(tmp_path: Path) -> None:
    golden = np.load(ONNX / "genai" / "gemma4_moe" / "golden_hf.npz")
    model = lowered(GEMMA, PREFILL, QNN)
    feeds = {
        **empty_past(model),
        "input_ids": golden["input_ids"],
        "attention_mask": np.ones((1, 8), np.int64),
        "position_ids": np.arange(8)[None],
    }
    found = htp.run(model, feeds, tmp_path)["logits"]
    error = (found - golden["prefill_logits"]) / golden["prefill_logits"].std()
    assert np.abs(error).max() <= DEVICE_MAX
    assert np.sqrt((error**2).mean()) <= DEVICE_RMS
