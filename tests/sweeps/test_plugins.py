"""Our rules inside tools of others: torch's exporter, Olive and mobius, each in an environment.

Slow, because the environments are made first: ``pytest -m slow tests/sweeps/test_plugins.py``. They
are kept in the folder that ``REWRITE_ENVIRONMENTS`` names (``exporters-2026``, ``olive-0.13.0``,
``mobius-0.1.0``). What they write is run here, by ONNX Runtime alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import plan
from rewriter.nodes import op_of
from tests import ort
from tests.decoders import FIXTURE
from tests.shared import SHARED, needs_shared
from tests.sweeps.environments import python_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAST = {"batch": 1, "seq": 1, "past": 8}


def _run(python: Path, *words: str, folder: Path, given: str = "") -> str:
    """What a command of another environment prints, with our checkout beside it."""
    done = subprocess.run(
        [str(python), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OLIVE_DISABLE_TELEMETRY": "1"},
        input=given,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _rewritten(worker: str, python: Path, folder: Path, **asked: Any) -> dict[str, Any]:
    """What a worker says; the models lie in the folder."""
    script = str(Path(__file__).with_name(f"{worker}_worker.py"))
    given = json.dumps({**asked, "folder": str(folder)})
    said = _run(python, script, folder=folder, given=given)
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def _ops(file: Path) -> Counter[str]:
    return Counter(op_of(node) for node in ir.load(file).graph)


def _step(model: ir.Model, seed: int = 0) -> ort.Arrays:
    """One token on a cache of 8 that has noise in it."""
    rng, feeds = np.random.default_rng(seed), ort.Arrays()
    for value in model.graph.inputs:
        name = str(value.name)
        dims = [d if isinstance(d, int) else 1 for d in value.shape or ()]
        if name.startswith("past"):
            feeds[name] = rng.standard_normal((1, dims[1], 8, dims[3])).astype(np.float32)
    tokens = {"input_ids": [[5]], "position_ids": [[8]], "attention_mask": [[1] * 9]}
    return feeds | {name: np.array(value) for name, value in tokens.items()}


def _same(original: Path, result: Path, least: int) -> None:
    """Every output is that of the original, on ONNX Runtime's CPU."""
    before, after = (ir.external_data.load_to_model(ir.load(f)) for f in (original, result))
    for seed in (0, 1):
        feeds = _step(after, seed)
        expected, found = ort.run(before, feeds), ort.run(after, feeds)
        assert set(expected) == set(found)
        assert len(found) >= least
        for name, array in expected.items():
            assert ort.worst(array, found[name]) < 5e-6, name


@pytest.mark.parametrize("ep", ["qnn@2.4.0", "onnx-standard@21"])
def test_torch_onnx_export(ep: str, environments: Path, tmp_path: Path) -> None:
    """The rule set on an ONNXProgram; torch's own logits are the oracle."""
    ids = [[7, 1, 99, 3, 3, 50, 0, 12]]
    python = python_of(environments, "exporters@2026")
    said = _rewritten("torch", python, tmp_path, target=ep, ids=ids)
    assert said["left"] == []
    assert said["sites"] >= 2
    result = ir.load(tmp_path / "rewritten.onnx")
    before, after = _ops(tmp_path / "original.onnx"), _ops(tmp_path / "rewritten.onnx")
    assert before["Attention"] == 2
    assert "Attention" not in after
    assert not plan(result, target(ep)).changed, "nothing is left to do"
    (given,) = result.graph.inputs
    (logits,) = ort.run(result, {str(given.name): np.array(ids)}).values()
    assert ort.worst(np.array(said["logits"], np.float32), logits) < 5e-6


def test_olive(environments: Path, tmp_path: Path) -> None:
    """``olive run`` with our pass in its package configuration, and one of its own behind it."""
    python = python_of(environments, "olive@0.13.0")
    package = _run(python, "-m", "rewriter.olive", folder=tmp_path)
    (tmp_path / "package.json").write_text(package, encoding="utf-8")
    config = {
        "input_model": {"type": "OnnxModel", "model_path": str(FIXTURE / "model.onnx")},
        "passes": {
            "rewrite": {"type": "RewriteForTarget", "target": "qnn@2.7.0", "dims": PAST},
            "surgery": {"type": "GraphSurgeries", "surgeries": [{"surgeon": "RemoveShapes"}]},
        },
        "output_dir": str(tmp_path / "out"),
        "cache_dir": str(tmp_path / "cache"),
        "no_artifacts": True,
    }
    (tmp_path / "run.json").write_text(json.dumps(config), encoding="utf-8")
    words = ("run", "--config", "run.json", "--package-config", "package.json")
    _run(python, "-m", "olive", *words, folder=tmp_path)
    result = tmp_path / "out" / "model.onnx"
    assert _ops(FIXTURE / "model.onnx")["com.microsoft::GroupQueryAttention"] == 2
    assert not any(op.endswith(("GroupQueryAttention", "LayerNormalization")) and "::" in op
                   for op in _ops(result))  # fmt: skip
    _same(FIXTURE / "model.onnx", result, least=5)


@needs_shared
@pytest.mark.parametrize("file", ["llama/f32.gguf", "qwen2/Q4_K_M.gguf"])
def test_mobius(file: str, environments: Path, tmp_path: Path) -> None:
    """A model that mobius built, rewritten in its process; mobius' own model is the oracle."""
    checkpoint = SHARED / "models" / file
    python = python_of(environments, "mobius@0.1.0")
    asked = {"target": "qnn@2.4.0", "dims": PAST, "checkpoint": str(checkpoint)}
    said = _rewritten("mobius", python, tmp_path, **asked)
    assert said["left"] == []
    assert said["sites"] > 4
    assert _ops(tmp_path / "original.onnx")["Attention"] >= 2
    assert "Attention" not in _ops(tmp_path / "rewritten.onnx")
    _same(tmp_path / "original.onnx", tmp_path / "rewritten.onnx", least=5)
