"""What a folder with ``model.onnx`` and ``golden.npz`` of an exporter is held to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from capabilities import target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import lower, plan
from rewriter.passes.fix_dims import fix_dims
from rewriter.runtime.versions import installed
from tests import ort

Dims = dict[str, int]
PHASES: dict[str, Dims] = {
    "decode": {"batch": 1, "seq": 1, "past": 8},
    "buffer": {"batch": 1, "seq": 1, "past": 16, "total": 16},
    "prefill": {"batch": 1, "seq": 8, "past": 0},
}
"""Of a decoder."""

QNN, OPENVINO = "qnn@2.7.0", "openvino@2026.4.1"
NEAR = 2e-5
"""Of the golden's standard deviation, in float32."""


def whole_command(folder: Path, dims: Dims, ep: str, scratch: Path) -> None:
    """Rewritten, compared, placed in one piece and compared on the device, where that can run."""
    name, version = ep.split("@")
    device = ["--parity", "device"] if installed(name) == version else ["--no-place"]
    report = scratch / "report.json"
    words = [f"--dim={dim}={size}" for dim, size in dims.items()]
    words += ["-o", str(scratch / "out"), "--report", str(report), *device]
    assert main([str(folder / "model.onnx"), "--ep", ep, *words]) == 0
    graph = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["stuck"] == graph["unknown"] == []
    for output in graph["parity"]["model"]["outputs"]:
        assert output["max_std"] < 1e-5, output
    if len(device) == 2:
        assert graph["placement"]["full"]
        assert (graph["placement"]["on_cpu"], graph["placement"]["partitions"]) == (0, 1)
        for output in graph["parity"]["device"]["outputs"]:
            assert ep != OPENVINO or output["max_std"] < 1e-5, output


def nothing_stuck_or_unknown(folder: Path, dims: Dims, ep: str) -> None:
    """Every node is legal, or a rule makes it so."""
    model = read(folder / "model.onnx")
    fix_dims(model, dims)
    report = plan(model, target(ep))
    assert not report.stuck, [str(node) for node in report.stuck]
    assert not report.unknown


def token_by_token(folder: Path, ep: str) -> None:
    """A prompt of 8, then four steps with the cache fed back, against the golden."""
    golden = np.load(folder / "golden.npz")
    ids, logits = golden["input_ids"], golden["logits"]
    model = _lowered(folder, PHASES["prefill"], ep)
    feeds: ort.Arrays = {n: np.zeros(s, np.float32) for n, s in _shapes(model).items()}
    feeds |= {"input_ids": ids[:, :8], "attention_mask": np.ones((1, 8), np.int64)}
    found = ort.run(model, feeds)
    assert _near(logits[:, :8], found["logits"])
    for at in range(8, ids.shape[1]):
        model = _lowered(folder, {**PHASES["decode"], "past": at}, ep)
        feeds = {n: found[re.sub(r"^past(_key_values)?", "present", n)] for n in _shapes(model)}
        feeds |= {
            "input_ids": ids[:, at : at + 1],
            "attention_mask": np.ones((1, at + 1), np.int64),
        }
        found = ort.run(model, feeds)
        assert _near(logits[:, at : at + 1], found["logits"]), at


def without_a_cache(folder: Path, dims: Dims, output: str, ep: str) -> None:
    """One run, against the golden."""
    golden = dict(np.load(folder / "golden.npz"))
    expected = golden.pop(output)
    assert _near(expected, ort.run(_lowered(folder, dims, ep), golden)[output])


def _lowered(folder: Path, dims: Dims, ep: str) -> ir.Model:
    model = read(folder / "model.onnx")
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
