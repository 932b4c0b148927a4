"""Small files of the exporters themselves: rewritten, proven, and held against torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from capabilities import eps, target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import lower, plan
from rewriter.passes.fix_dims import fix_dims
from rewriter.runtime.versions import installed
from tests import ort

FIXTURES = Path(__file__).parents[2] / "fixtures"
DECODERS = ["genai/gemma2", "genai/phi3", "genai/qwen2_int4", "genai/gptoss_int4"]
WHOLE = {
    "torch/sentence_encoder": ("sentence", {"seq": 8}),
    "torch/mistral": ("logits", {"seq": 8}),
    "torch/vit": ("logits", {}),
}
"""Models without a cache: the output, and the dims that are free."""
PHASES: dict[str, dict[str, int]] = {
    "decode": {"batch": 1, "seq": 1, "past": 8},
    "buffer": {"batch": 1, "seq": 1, "past": 16, "total": 16},
    "prefill": {"batch": 1, "seq": 8, "past": 0},
}
CASES = [(file, dims) for file in DECODERS for dims in PHASES.values()]
CASES += [(file, dims) for file, (_, dims) in WHOLE.items()]
QNN = "qnn@2.7.0"
VERSIONS = [f"{ep.name}@{v}" for ep in eps() if ep.name in {"qnn", "openvino"} for v in ep.measured]
EPS = [*VERSIONS, "onnx-standard"]
NEAR = 2e-5
"""Of the golden's standard deviation, in float32."""


def _lowered(file: str, dims: dict[str, int], ep: str) -> ir.Model:
    model = read(FIXTURES / file / "model.onnx")
    fix_dims(model, dims)
    lower(model, target(ep), keep_sites=False)
    return model


def _shapes(model: ir.Model) -> dict[str, tuple[int, ...]]:
    """Of the caches that come in."""
    return {
        str(value.name): tuple(value.shape.numpy())
        for value in model.graph.inputs
        if (value.name or "").startswith("past") and value.shape is not None
    }


def _near(expected: npt.NDArray[np.float32], actual: npt.NDArray[np.float32]) -> bool:
    return float(np.abs(expected - actual).max()) < NEAR * float(expected.std())


@pytest.mark.parametrize(("file", "dims"), CASES, ids=str)
def test_the_whole_command(file: str, dims: dict[str, int], tmp_path: Path) -> None:
    device = ["--parity", "device"] if installed("qnn") == "2.7.0" else ["--no-place"]
    report = tmp_path / "report.json"
    words = [f"--dim={name}={value}" for name, value in dims.items()]
    words += ["-o", str(tmp_path / "out"), "--report", str(report), *device]
    assert main([str(FIXTURES / file / "model.onnx"), "--ep", QNN, *words]) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["stuck"] == graph["unknown"] == []
    for output in graph["parity"]["model"]["outputs"]:
        assert output["max_std"] < 1e-5, output
    if len(device) == 2:
        assert graph["placement"]["full"]


@pytest.mark.parametrize("ep", EPS)
@pytest.mark.parametrize(("file", "dims"), CASES, ids=str)
def test_nothing_is_stuck_or_unknown_at_any_version(
    file: str, dims: dict[str, int], ep: str
) -> None:
    model = read(FIXTURES / file / "model.onnx")
    fix_dims(model, dims)
    report = plan(model, target(ep))
    assert not report.stuck, [str(node) for node in report.stuck]
    assert not report.unknown


@pytest.mark.parametrize("ep", [QNN, "onnx-standard"])
@pytest.mark.parametrize("file", DECODERS)
def test_a_decoder_token_by_token(file: str, ep: str) -> None:
    """A prompt of 8, then four steps with the cache fed back.

    Gemma 2's window of 4 drops rows in every step, as that of gpt-oss does, whose heads have sinks
    and whose experts are QMoE; Phi-3 leaves its short rotary table behind after the prompt. The
    head of Qwen 2 is its table of embeddings too, in int8 with zero points.
    """
    golden = np.load(FIXTURES / file / "golden.npz")
    ids, logits = golden["input_ids"], golden["logits"]
    model = _lowered(file, PHASES["prefill"], ep)
    feeds: ort.Arrays = {n: np.zeros(s, np.float32) for n, s in _shapes(model).items()}
    feeds |= {"input_ids": ids[:, :8], "attention_mask": np.ones((1, 8), np.int64)}
    found = ort.run(model, feeds)
    assert _near(logits[:, :8], found["logits"])
    for at in range(8, ids.shape[1]):
        model = _lowered(file, {**PHASES["decode"], "past": at}, ep)
        past = {n.replace("present", "past_key_values"): v for n, v in found.items()}
        feeds = {name: past[name] for name in _shapes(model)}
        feeds |= {
            "input_ids": ids[:, at : at + 1],
            "attention_mask": np.ones((1, at + 1), np.int64),
        }
        found = ort.run(model, feeds)
        assert _near(logits[:, at : at + 1], found["logits"]), at


@pytest.mark.parametrize("ep", [QNN, "onnx-standard"])
@pytest.mark.parametrize("file", WHOLE)
def test_a_model_without_a_cache(file: str, ep: str) -> None:
    """A sentence with padding, a prompt longer than the window of Mistral, a picture."""
    name, dims = WHOLE[file]
    golden = dict(np.load(FIXTURES / file / "golden.npz"))
    expected = golden.pop(name)
    assert _near(expected, ort.run(_lowered(file, dims, ep), golden)[name])
