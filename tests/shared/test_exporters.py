"""Every exporter's file: rewritten, compared, placed whole, run on HTP, held against goldens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capabilities import eps, target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import plan
from rewriter.parity.settings import DEVICE_MAX, DEVICE_RMS
from rewriter.passes.fix_dims import fix_dims
from tests import ort
from tests.quick import slow_but
from tests.shared import needs_shared
from tests.shared.files import CASES, HALF, ONNX, PHASES, lowered, token_by_token
from tests.shared.halves import no_farther_than_the_original, openvino_stores_exact

pytestmark = needs_shared

QNN = "qnn@2.7.0"
QUICK = [
    (file, phase)
    for file, phase in CASES
    if phase not in {"buffer", "prefill"} or file == "genai/llama/fp32"
]
"""Of each file a decode step, of one every phase."""
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]


@pytest.mark.parametrize(("file", "phase"), slow_but(QUICK, CASES))
def test_runs_whole_on_htp(file: str, phase: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = [f"--dim={name}={value}" for name, value in PHASES[file][phase].items()]
    source = ONNX / file / "model.onnx"
    words = [str(source), "--ep", QNN, *words, "-o", str(tmp_path / "out"), "--parity", "device"]
    assert main([*words, "--report", str(report)]) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["stuck"] == graph["unknown"] == []
    placement = graph["placement"]
    assert (placement["on_cpu"], placement["partitions"], placement["full"]) == (0, 1, True)
    for output in graph["parity"]["model"]["outputs"]:
        assert output["max_std"] < 1e-5, output  # a file in float16: both sides in float32
    for output in graph["parity"]["device"]["outputs"]:
        assert output["max_std"] <= DEVICE_MAX, output
        assert output["rms_std"] <= DEVICE_RMS, output
    logits = graph["parity"]["device"]["outputs"][0]
    assert logits["max_std"] > 1e-5, "below that it was not HTP"


@pytest.mark.parametrize(("file", "phase"), slow_but(QUICK, CASES))
def test_runs_on_openvino(file: str, phase: str, tmp_path: Path) -> None:
    """Read, compiled and computed by the CPU plugin at f32: exact arithmetic, so a tight bound."""
    report = tmp_path / "report.json"
    words = [f"--dim={name}={value}" for name, value in PHASES[file][phase].items()]
    words += ["--ep", "openvino@2026.4.1", "-o", str(tmp_path / "out"), "--report", str(report)]
    source = ONNX / file / "model.onnx"
    assert main([str(source), *words, "--parity", "device"]) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["placement"]["on_cpu"] == 0
    if file == HALF:
        assert openvino_stores_exact(source, tmp_path / "out" / "model.onnx")
        return
    for output in graph["parity"]["device"]["outputs"]:
        assert output["max_std"] < 1e-5, output


@pytest.mark.parametrize("ep", [*VERSIONS, "onnx-standard"])
@pytest.mark.parametrize("file", list(PHASES))
def test_nothing_is_stuck_or_unknown_at_any_version(file: str, ep: str) -> None:
    for dims in PHASES[file].values():
        model = read(ONNX / file / "model.onnx")
        fix_dims(model, dims)
        report = plan(model, target(ep))
        assert not report.stuck, [str(node) for node in report.stuck]
        assert not report.unknown


EXACT = [
    "genai/qwen3/fp32",
    "genai/gemma4_dense/fp32_fullkv",
    "genai/gemma4_dense/int4_fullkv",
]


@pytest.mark.parametrize("file", EXACT)
def test_goldens_of_the_builder_token_by_token(file: str) -> None:
    golden = np.load(ONNX / file / "golden_exact.npz")
    ids = np.load(ONNX / file / ".." / "golden_hf.npz")
    found = token_by_token(file, QNN, ids["input_ids"], ids["decode_ids"])
    std = golden["prefill_logits"].std()
    assert np.abs(found[0] - golden["prefill_logits"]).max() < 2e-5 * std
    decoded = np.concatenate(found[1:], axis=1)
    assert np.abs(decoded - golden["decode_logits"]).max() < 2e-5 * std


def test_goldens_of_torch_token_by_token() -> None:
    """Optimum's file is float32: torch itself is the golden, and rounds a little differently."""
    golden = np.load(ONNX / "optimum" / "llama_with_past" / "golden_hf.npz")
    found = token_by_token(
        "optimum/llama_with_past", QNN, golden["input_ids"], golden["decode_ids"]
    )
    std = golden["prefill_logits"].std()
    assert np.abs(found[0] - golden["prefill_logits"]).max() < 2e-5 * std
    decoded = np.concatenate(found[1:], axis=1)
    assert np.abs(decoded - golden["decode_logits"]).max() < 2e-5 * std


@pytest.mark.parametrize("ep", [QNN, "onnx-standard"])
@pytest.mark.parametrize("file", [file for file in PHASES if file.startswith("torch")])
def test_goldens_of_torch(file: str, ep: str) -> None:
    golden = dict(np.load(ONNX / file / "golden_hf.npz"))
    (dims,) = PHASES[file].values()
    model = lowered(file, dims, ep)
    names = [str(value.name) for value in model.graph.outputs]
    feeds = {str(v.name): golden[str(v.name)] for v in model.graph.inputs}
    expected = golden[names[0]] if names[0] in golden else golden[list(golden)[-1]]
    if file == HALF:
        no_farther_than_the_original(read(ONNX / file / "model.onnx"), model, feeds, expected)
        return
    error = np.abs(ort.run(model, feeds)[names[0]] - expected).max()
    assert error < 2e-5 * expected.std()
