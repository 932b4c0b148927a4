"""Checkpoints of the fixtures and torch's logits beside them, which every format is held to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from capabilities import target
from frontends import read
from rewriter.cli import main
from rewriter.lowering import plan
from rewriter.passes.fix_dims import fix_dims
from tests.steps import Steps

GOLDEN = 2e-4
"""Of the logits' standard deviation."""
TARGETS = ("qnn@2.7.0", "qnn@2.4.0", "openvino@2025.0.0", "openvino@2026.4.1")
LONG = "phi3-long"
"""Rotates texts of up to 24 tokens and longer ones differently, by the length that is served."""
SHORT = 24
Array = npt.NDArray[Any]


def golden(folder: Path, prefix: str = "") -> tuple[Array, Array]:
    """Ids (1, S), and logits (S, V)."""
    stored = np.load(folder / "golden.npz")
    ids, logits = stored[f"{prefix}input_ids"], stored[f"{prefix}logits"]
    assert np.isfinite(logits).all()
    assert logits.std() > 0.5
    return ids, logits


def error(logits: Array, wanted: Array) -> float:
    """Largest difference of logits (1, S, V), of the standard deviation of those wanted (S, V)."""
    assert logits.shape[1:] == wanted.shape
    return float(np.abs(logits[0] - wanted).max() / wanted.std())


def stepwise(prompt: Steps, token: Steps, ids: Array, first: int) -> Array:
    """Logits of the first tokens at once, and of the others one by one."""
    found = [prompt(ids[:, :first])]
    if token is not prompt:
        token.take(prompt)
    found += [token(ids[:, i : i + 1]) for i in range(first, ids.shape[1])]
    return np.concatenate(found, axis=1)


def require_logits(model: Path, folder: Path) -> None:
    """Those of a case, whole, and as 8 tokens and then single ones."""
    ids, wanted = golden(folder)
    assert error(Steps(model)(ids), wanted) < GOLDEN
    steps = Steps(model)
    assert error(stepwise(steps, steps, ids, 8), wanted) < GOLDEN


def require_long_logits(model: Path, folder: Path) -> None:
    """Those of a long text; a short one has others than where short texts are served."""
    ids, wanted = golden(folder, "long_")
    assert error(Steps(model)(ids), wanted) < GOLDEN
    ids, wanted = golden(folder)
    assert error(Steps(model)(ids), wanted) > 100 * GOLDEN


def require_other_logits(model: Path, folder: Path) -> None:
    """The logits are far from those of a case."""
    ids, wanted = golden(folder)
    assert error(Steps(model)(ids), wanted) > 10 * GOLDEN


def require_nothing_stuck(path: Path) -> None:
    """On any target, one token on a cache that is not full."""
    model = read(path)
    fix_dims(model, {"batch": 1, "seq": 1, "past": 32, "total": 32})
    for name in TARGETS:
        report = plan(model, target(name))
        assert not report.stuck, (name, [str(node) for node in report.stuck])
        assert not report.unknown, (name, [str(node) for node in report.unknown])


def require_whole_on_htp(path: Path, folder: Path, scratch: Path) -> None:
    """Both graphs of a fixed cache: placed whole, equal on the device, and the golden logits."""
    ids, wanted = golden(folder)
    out, report = scratch / "out", scratch / "report.json"
    sizes = ["--static", "both", "--seq", "4", "--max-seq-len", "32"]
    words = [str(path), "-o", str(out), "--ep", "qnn@2.7.0", "--report", str(report)]
    assert main([*words, *sizes]) == 0
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    assert [graph["phase"] for graph in graphs] == ["prefill", "decode"]
    for graph in graphs:
        assert graph["stuck"] == graph["unknown"] == []
        assert graph["placement"]["on_cpu"] == 0
    prompt, token = Steps(out / "prefill.onnx"), Steps(out / "decode.onnx")
    assert error(stepwise(prompt, token, ids, 4), wanted) < GOLDEN
