"""Which version of a runtime is installed."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

from rewriter.errors import RuntimeFault

# The first distribution that is installed counts: ONNX Runtime comes in several flavours.
_DISTRIBUTIONS = {
    "qnn": ("onnxruntime-qnn",),
    "openvino": ("openvino",),
    "openvino-ep": ("onnxruntime-ep-openvino",),
    "ort-cpu": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino"),
}
_ASK = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(importlib.metadata.version(name))
        break
    except importlib.metadata.PackageNotFoundError:
        pass
"""
_TIME_LIMIT = 60


def distribution(ep: str) -> str:
    """What pip calls an EP's runtime.

    Raises:
        KeyError: it has none.
    """
    return _DISTRIBUTIONS[ep][0]


def installed(ep: str, python: Path | None = None) -> str | None:
    """The version of an EP's runtime, without importing it.

    Args:
        ep: a target's EP; one that has no runtime of its own is never installed.
        python: the interpreter to ask; this process when None.

    Raises:
        RuntimeFault: the interpreter cannot be run.
    """
    names = _DISTRIBUTIONS.get(ep, ())
    if python is not None:
        return _ask(python, names)
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _ask(python: Path, names: tuple[str, ...]) -> str | None:
    try:
        answer = subprocess.run(
            [str(python), "-c", _ASK, *names],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIME_LIMIT,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeFault("missing", f"{python} is not a Python that can be run") from error
    return answer.stdout.strip() or None
