"""What the workers share: the files by which a job comes in and its result goes out.

The workers are scripts that any Python runs, so this imports nothing of the package.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_RUNTIMES = frozenset({"onnxruntime", "onnxruntime_qnn", "openvino"})
_SIGNAL_OF_DEATH = 1
"""``PR_SET_PDEATHSIG`` of ``prctl(2)``."""


class Failure(Exception):
    """A failure of a certain kind; any other exception is described by its type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main(job_file: Path, work: Callable[[dict[str, Any], Path], dict[str, Any]]) -> None:
    """Do the job and leave ``result.json``, which holds an ``error`` when the job failed."""
    end_with_parent()
    job = json.loads(job_file.read_text(encoding="utf-8"))
    try:
        result = work(job, job_file.parent)
    except Exception as error:
        result = {"error": describe(error)}
    part = job_file.with_name("result.part")
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(job_file.with_name("result.json"))  # never a half-written result


def end_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends, whatever it is at.

    A parent that is killed can end no child, and a runtime that hangs hears of nothing.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_OF_DEATH, int(signal.SIGKILL))


def enter(folder: Path, stage: str) -> None:
    """Note what comes next: a process that dies or hangs can no longer say where it was."""
    (folder / "stage").write_text(stage, encoding="utf-8")


def read_feed(feed: dict[str, Any]) -> dict[str, Any]:
    """The arrays of one feed by the names of the inputs."""
    import numpy as np

    with np.load(feed["file"], allow_pickle=False) as stored:
        return {name: stored[str(index)] for index, name in enumerate(feed["names"])}


def write_outputs(file: Path, names: list[str], values: Iterable[Any]) -> dict[str, Any]:
    """Store outputs in an npz file, keyed by position as names may be anything."""
    import numpy as np

    arrays = [storable(name, value) for name, value in zip(names, values, strict=True)]
    np.savez(file, **{str(index): array for index, array in enumerate(arrays)})
    return {"file": str(file), "names": names}


def storable(name: str, value: Any) -> Any:
    """An array that an npz file holds without pickling."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise TypeError(f"output {name!r} is a {type(value).__name__}, not a tensor")
    return value.astype(str) if value.dtype.kind == "O" else value


def describe(error: Exception) -> dict[str, str]:
    """The error as data: its kind, and the module's name or the message."""
    if isinstance(error, ImportError) and error.name in _RUNTIMES:
        return {"kind": "missing", "message": error.name}
    if isinstance(error, Failure):
        return {"kind": error.kind, "message": str(error)}
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return {"kind": kind, "message": str(error) or type(error).__name__}
