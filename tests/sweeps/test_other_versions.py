"""The shared files on every other measured version of a runtime, each in an environment of its own.

Slow, because the environments are made first: ``pytest -m slow tests/sweeps``. They are kept in
the folder that ``REWRITE_ENVIRONMENTS`` names, if it is set, and made anew otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewriter.cli import main
from tests.shared import needs_shared
from tests.shared.files import CASES, CHECKPOINTS, GGUF_FILES, HALF, MODELS, ONNX, PHASES
from tests.shared.halves import openvino_stores_exact
from tests.sweeps.environments import PACKAGES, python_of

pytestmark = [needs_shared, pytest.mark.slow]


def _graphs(words: list[str], ep: str, environments: Path, folder: Path) -> list[dict[str, Any]]:
    """Run the command on a version's own runtime; what it reports of each graph."""
    report = folder / "report.json"
    words += ["--ep", ep, "--runtime", str(python_of(environments, ep)), "--report", str(report)]
    words += ["--parity", "device" if ep.startswith("openvino") else "none"]
    assert main([*words, "-o", str(folder / "o")]) == 0
    graphs: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    for graph in graphs:
        placement = graph["placement"]
        assert (placement["on_cpu"], placement["partitions"]) == (0, 1)
    return graphs


def _errors(graphs: list[dict[str, Any]]) -> list[float]:
    """Of the device's outputs, in standard deviations; none where it was not compared (qnn)."""
    parities = [graph["parity"] for graph in graphs if graph["parity"] is not None]
    return [out["max_std"] for parity in parities for out in parity["device"]["outputs"]]


@pytest.mark.parametrize("ep", list(PACKAGES))
@pytest.mark.parametrize(("file", "phase"), CASES)
def test_runs_whole(file: str, phase: str, ep: str, environments: Path, tmp_path: Path) -> None:
    dims = [f"--dim={name}={value}" for name, value in PHASES[file][phase].items()]
    source = ONNX / file / "model.onnx"
    found = _errors(_graphs([str(source), *dims], ep, environments, tmp_path))
    assert bool(found) == ep.startswith("openvino")
    if found and file == HALF:
        python = python_of(environments, ep)
        assert openvino_stores_exact(source, tmp_path / "o" / "model.onnx", python)
    else:
        assert all(error < 1e-5 for error in found), found


@pytest.mark.parametrize("ep", list(PACKAGES))
@pytest.mark.parametrize("file", GGUF_FILES + CHECKPOINTS)
def test_a_checkpoint_runs_whole(file: str, ep: str, environments: Path, tmp_path: Path) -> None:
    words = [str(MODELS / file), "--static", "both", "--seq", "8", "--max-seq-len", "32"]
    found = _errors(_graphs(words, ep, environments, tmp_path))
    assert bool(found) == ep.startswith("openvino")
    assert all(error < 1e-4 for error in found), found
