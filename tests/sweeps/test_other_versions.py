"""The shared files on every other measured version of a runtime, each in an environment of its own.

Slow, because the environments are made first: ``pytest -m slow tests/sweeps``. They are kept in
the folder that ``REWRITE_ENVIRONMENTS`` names, if it is set, and made anew otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from functools import cache
from pathlib import Path

import pytest

from rewriter.cli import main
from tests.shared import needs_shared
from tests.shared.files import CASES, ONNX, PHASES

pytestmark = [needs_shared, pytest.mark.slow]

PACKAGES = {
    "qnn@2.3.0": ["onnxruntime-qnn==2.3.0", "onnxruntime==1.27.0"],
    "qnn@2.4.0": ["onnxruntime-qnn==2.4.0", "onnxruntime==1.27.0"],
    "qnn@2.5.0": ["onnxruntime-qnn==2.5.0", "onnxruntime==1.32.0"],
    "qnn@2.6.0": ["onnxruntime-qnn==2.6.0", "onnxruntime==1.32.0"],
    "openvino@2024.6.0": ["openvino==2024.6.0"],
    "openvino@2025.0.0": ["openvino==2025.0.0"],
    "openvino@2025.2.0": ["openvino==2025.2.0"],
    "openvino@2025.4.1": ["openvino==2025.4.1"],
    "openvino@2026.2.1": ["openvino==2026.2.1"],
}


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the environments live."""
    kept = os.environ.get("REWRITE_ENVIRONMENTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("environments")


@cache
def _python(environments: Path, ep: str) -> Path:
    folder = environments / ep.replace("@", "-")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES[ep]]
        subprocess.run(install, check=True)
    return python


@pytest.mark.parametrize("ep", list(PACKAGES))
@pytest.mark.parametrize(("file", "phase"), CASES)
def test_runs_whole(file: str, phase: str, ep: str, environments: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = [f"--dim={name}={value}" for name, value in PHASES[file][phase].items()]
    words += ["--runtime", str(_python(environments, ep)), "--report", str(report)]
    words += ["--parity", "device" if ep.startswith("openvino") else "none"]
    assert (
        main([str(ONNX / file / "model.onnx"), "--ep", ep, "-o", str(tmp_path / "o"), *words]) == 0
    )
    placement = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]["placement"]
    assert (placement["on_cpu"], placement["partitions"]) == (0, 1)
