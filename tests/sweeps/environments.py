"""An environment for every other measured version of a runtime, made when it is first needed."""

from __future__ import annotations

import os
import subprocess
import venv
from functools import cache
from pathlib import Path

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
"""What pip installs for each."""

DRIVERS = {
    "genai@0.18.0": [
        *("onnxruntime-genai==0.18.0", "onnxruntime==1.32.0", "onnxruntime-qnn==2.7.0"),
    ],
}
"""The same for what runs folders that were written."""

EXPORTERS = {
    "exporters@2026": [
        *("torch==2.13.0", "transformers==5.13.1", "onnxscript==0.7.2", "onnx==1.23.2"),
        *("onnxruntime-genai==0.18.0", "onnxruntime==1.32.0", "onnx-shape-inference==0.4.0"),
    ],
}
"""The same for what writes ONNX files."""

PEERS = {
    "mobius@0.1.0": ["mobius-onnx[gguf]==0.1.0", "torch==2.13.0"],
    "olive@0.13.0": [
        *("olive-ai==0.13.0", "torch==2.13.0", "onnxruntime==1.32.0"),
        *("onnx-shape-inference==0.4.0", "requests"),  # ours, and one that Olive forgot
    ],
}
"""The same for tools that others make, which the benchmarks run beside ours and our rules in."""


@cache
def python_of(environments: Path, ep: str) -> Path:
    """The interpreter of a version's environment.

    Args:
        environments: the folder that holds them.
        ep: a key of :data:`PACKAGES`, :data:`DRIVERS`, :data:`EXPORTERS` or :data:`PEERS`.
    """
    folder = environments / ep.replace("@", "-")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            *(PACKAGES | DRIVERS | EXPORTERS | PEERS)[ep],
        ]
        subprocess.run(install, check=True)
    return python
