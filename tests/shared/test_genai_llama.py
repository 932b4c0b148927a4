"""The llama of the onnxruntime-genai builder: rewritten, compared, placed, run on HTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import lower
from rewriter.parity.settings import DEVICE_MAX, DEVICE_RMS
from rewriter.passes.fix_dims import fix_dims
from rewriter.placement import place
from rewriter.runtime.versions import installed
from tests import ort
from tests.quick import slow_but
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared

LLAMA = SHARED / "onnx" / "genai" / "llama"
VARIANTS = ["fp32", "int4", "int4_qdq"]
DIMS = {
    "decode": {"batch": 1, "seq": 1, "past": 8},
    "buffer": {"batch": 1, "seq": 1, "past": 16, "total": 16},
    "prefill": {"batch": 1, "seq": 8, "past": 0},
}
TARGETS = ["qnn@2.7.0", "onnx-standard"]


def _command(variant: str, dims: str, ep: str, output: Path, *more: str) -> list[str]:
    words = [f"--dim={name}={value}" for name, value in DIMS[dims].items()]
    return [str(LLAMA / variant / "model.onnx"), "--ep", ep, *words, "-o", str(output), *more]


def _interface(path: Path) -> list[tuple[str | None, ir.DataType | None]]:
    graph = ir.load(path).graph
    return [(v.name, v.dtype) for v in [*graph.inputs, *graph.outputs]]


@pytest.mark.parametrize("ep", TARGETS)
@pytest.mark.parametrize("dims", slow_but(["decode"], list(DIMS)))
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_whole_command(variant: str, dims: str, ep: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    qnn = ep.startswith("qnn")
    level = "device" if qnn else "model"
    output = tmp_path / "out"
    words = _command(variant, dims, ep, output, "--report", str(report), "--parity", level)
    assert main(words) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["stuck"] == graph["unknown"] == []
    for found in graph["parity"]["model"]["outputs"]:
        assert found["max_std"] < 1e-5, found
    assert all(site["ok"] for site in graph["parity"]["sites"])
    if qnn:
        placement = graph["placement"]
        assert (placement["on_cpu"], placement["partitions"], placement["full"]) == (0, 1, True)
        for found in graph["parity"]["device"]["outputs"]:
            assert 1e-5 < found["max_std"] <= DEVICE_MAX, "below 1e-5 it was not HTP"
            assert found["rms_std"] <= DEVICE_RMS
    else:
        assert not [op for op in graph["ops_after"] if "::" in op or op.startswith("Simplified")]
    source = LLAMA / variant / "model.onnx"
    assert _interface(output / "model.onnx") == _interface(source)


@pytest.mark.parametrize("variant", VARIANTS)
def test_twice_is_once_and_runs_are_identical(variant: str, tmp_path: Path) -> None:
    fast = ("--parity", "none", "--no-place")
    for name in ("a", "b"):
        assert main(_command(variant, "decode", "qnn@2.7.0", tmp_path / name, *fast)) == 0
    assert main([str(tmp_path / "a"), "--ep", "qnn@2.7.0", "-o", str(tmp_path / "c"), *fast]) == 0
    for file in ("model.onnx", "model.onnx.data"):
        contents = [(tmp_path / name / file).read_bytes() for name in ("a", "b", "c")]
        assert contents[0] == contents[1] == contents[2], file


def test_a_present_declared_too_short_is_corrected_and_said(tmp_path: Path) -> None:
    """A buffer of 16 with a mask of 9: the file declares 9 rows, ORT returns 16."""
    report = tmp_path / "report.json"
    words = _command("fp32", "decode", "qnn@2.7.0", tmp_path / "out", "--report", str(report))
    words = [word.replace("past=8", "past=16") for word in words] + ["--dim", "total=9"]
    assert main(words) == 0
    notes = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]["notes"]
    assert any("declared with 9 rows; kept are the 16" in note for note in notes)
    present = ir.load(tmp_path / "out" / "model.onnx").graph.outputs[1]
    assert present.shape is not None
    assert present.shape[2] == 16


def _lowered(variant: str, dims: dict[str, int], ep: str) -> ir.Model:
    model = read(LLAMA / variant / "model.onnx")
    fix_dims(model, dims)
    lower(model, target(ep), keep_sites=False)
    return model


@pytest.mark.parametrize("ep", TARGETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_goldens_token_by_token(variant: str, ep: str) -> None:
    """Prefill 8, then 4 steps with the cache fed back, against the builder's own goldens."""
    golden = np.load(LLAMA / variant / "golden_exact.npz")
    ids = np.load(LLAMA / "golden_hf.npz")
    model = _lowered(variant, DIMS["prefill"], ep)
    given: dict[str, Any] = {
        str(v.name): np.zeros((1, 2, 0, 16), np.float32)
        for v in model.graph.inputs
        if (v.name or "").startswith("past")
    }
    given |= {"input_ids": ids["input_ids"], "attention_mask": np.ones((1, 8), np.int64)}
    found = ort.run(model, given)
    std = golden["prefill_logits"].std()
    assert np.abs(found["logits"] - golden["prefill_logits"]).max() < 1e-5 * std
    for step in range(4):
        past = {
            k.replace("present", "past_key_values"): v
            for k, v in found.items()
            if k.startswith("present")
        }
        model = _lowered(variant, {"batch": 1, "seq": 1, "past": 8 + step}, ep)
        mask = np.ones((1, 9 + step), np.int64)
        token = ids["decode_ids"][:, step : step + 1]
        found = ort.run(model, {**past, "input_ids": token, "attention_mask": mask})
        wanted = golden["decode_logits"][:, step : step + 1]
        assert np.abs(found["logits"] - wanted).max() < 1e-5 * std, f"step {step}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_goldens_through_one_buffer_on_htp(variant: str, tmp_path: Path) -> None:
    """The same four steps through one decode graph with a buffer, on HTP's arithmetic."""
    if installed("qnn") != "2.7.0":
        pytest.fail("the test environment installs onnxruntime-qnn 2.7.0")
    golden = np.load(LLAMA / variant / "golden_exact.npz")
    ids = np.load(LLAMA / "golden_hf.npz")
    prefill = _lowered(variant, {"batch": 1, "seq": 8, "past": 16, "total": 16}, "qnn@2.7.0")
    decode = _lowered(variant, DIMS["buffer"], "qnn@2.7.0")
    found: dict[str, Any] = {
        (v.name or "").replace("past_key_values", "present"): np.full((1, 2, 16, 16), 7, np.float32)
        for v in prefill.graph.inputs
        if (v.name or "").startswith("past")
    }
    std = golden["prefill_logits"].std()
    steps = [(prefill, ids["input_ids"], golden["prefill_logits"], 8)]
    steps += [
        (decode, ids["decode_ids"][:, i : i + 1], golden["decode_logits"][:, i : i + 1], 9 + i)
        for i in range(4)
    ]
    for step, (model, tokens, wanted, valid) in enumerate(steps):
        path = tmp_path / f"{step}.onnx"
        ir.save(model, path)
        feeds = {
            k.replace("present", "past_key_values"): v
            for k, v in found.items()
            if k.startswith("present")
        }
        feeds["input_ids"] = tokens
        feeds["attention_mask"] = (np.arange(16) < valid).astype(np.int64)[None]
        placed = place(path, ep="qnn", options={}, feeds=[feeds])
        assert placed.full
        found = dict(placed.outputs[0])
        error = np.abs(found["logits"] - wanted)
        assert 1e-5 * std < error.max() <= DEVICE_MAX * std, f"step {step}"
        assert np.sqrt((error**2).mean()) <= DEVICE_RMS * std
