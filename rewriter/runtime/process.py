"""The child process of a foreign runtime: how it begins, how it ends, and what its end means.

It has its own process group and its own folder, and what it prints is a file that we read.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rewriter.errors import RuntimeFault
from rewriter.runtime import log

RUNTIMES = {"cpu": "ONNX Runtime", "qnn": "QNN", "openvino": "OpenVINO"}
"""What a runtime is called, by the EP of a job."""

_PACKAGES = {
    "onnxruntime": ("onnxruntime", "ort"),
    "onnxruntime_qnn": ("onnxruntime-qnn", "qnn"),
    "openvino": ("openvino", "openvino"),
}
_OUT_OF_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "Unable to allocate")
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_GIGABYTE = 1 << 30
_EXACT = {"ORT_QMOE_CPU_QNBIT_GEMM": "0"}
"""Without it ORT's QMoE rounds activations to 8 bits where the weights have 8-bit blocks."""


class Refused(RuntimeFault):
    """A reader does not translate a file; ``said`` is everything that it said."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__("error", message)
        self.said = said


def start(
    worker: Path, folder: Path, python: Path | None, *, exact: bool, served: bool = False
) -> subprocess.Popen[bytes]:
    """Start a worker on a folder that holds its ``job.json``; what it prints goes to ``log``.

    Args:
        worker: the script.
        folder: of the job.
        python: the interpreter whose runtime is used; this one when None.
        exact: without kernels that round activations.
        served: it is asked and answers through its stdin and stdout, instead of doing one job.

    Raises:
        RuntimeFault: the interpreter cannot be started.
    """
    interpreter = sys.executable if python is None else str(python)
    kernels = _EXACT if exact else {}
    with (folder / "log").open("wb") as output:
        try:
            return subprocess.Popen(
                [interpreter, str(worker), str(folder / "job.json")],
                stdin=subprocess.PIPE if served else subprocess.DEVNULL,
                stdout=subprocess.PIPE if served else output,
                stderr=output if served else subprocess.STDOUT,
                # Modules beside the worker stay off its import path, and what a runtime leaves
                # in the temporary folder goes with ours.
                env={**os.environ, **kernels, "PYTHONSAFEPATH": "1", "TMPDIR": str(folder)},
                start_new_session=True,
            )
        except OSError as error:
            raise RuntimeFault(
                "missing", f"{interpreter} cannot be started: {error.strerror}"
            ) from error


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a child and all that it started."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def resident(process: subprocess.Popen[bytes]) -> int:
    """Bytes of memory that a child holds; 0 where the system has no ``/proc`` to tell."""
    try:
        told = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    kilobytes = _RESIDENT.search(told)  # a process that has just ended has no such line
    return 1024 * int(kilobytes[1]) if kilobytes else 0


def stage(folder: Path) -> str:
    """What the child was doing last."""
    path = folder / "stage"
    return path.read_text(encoding="utf-8") if path.exists() else "starting"


def seen(folder: Path, start: int = 0) -> log.Log:
    """What its log says from a byte on."""
    with (folder / "log").open("rb") as stream:
        stream.seek(start)
        return log.read(line.decode("utf-8", "replace") for line in stream)


def timeout(ep: str, folder: Path, time_limit: float) -> RuntimeFault:
    """The fault of a child that took too long."""
    return RuntimeFault(
        "timeout",
        f"{RUNTIMES[ep]} was stopped after {time_limit:g} s while {stage(folder)}; "
        "allow more time or try a smaller model",
    )


def too_large(ep: str, folder: Path, memory_limit: int) -> RuntimeFault:
    """The fault of a child that held too much memory."""
    return RuntimeFault(
        "memory",
        f"{RUNTIMES[ep]} was stopped at {memory_limit / _GIGABYTE:g} GB of memory "
        f"while {stage(folder)}",
    )


def death(ep: str, folder: Path, code: int) -> RuntimeFault:
    """The fault of a child that ended without a result."""
    runtime, doing, said = RUNTIMES[ep], stage(folder), seen(folder)
    last = said.errors[-1] if said.errors else ""
    if any(sign in said.last for sign in _OUT_OF_MEMORY):
        return RuntimeFault("memory", f"{runtime} ran out of memory while {doing}: {said.last}")
    crash = _crash(code)
    if crash == "SIGKILL":
        return RuntimeFault(
            "memory",
            f"{runtime} was killed (SIGKILL) while {doing}, most likely because memory ran out",
        )
    if crash is not None:
        tail = f"; its last error was: {last}" if last else ""
        return RuntimeFault("crash", f"{runtime} crashed with {crash} while {doing}{tail}")
    return RuntimeFault("error", f"{runtime} failed while {doing}: {last or said.last}")


def _crash(code: int) -> str | None:
    """The name of what killed a process: a signal, or an exception code of Windows."""
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exception 0x{code:08X}" if code >= 0x80000000 else None


def fault(ep: str, folder: Path, error: Mapping[str, str], python: Path | None) -> RuntimeFault:
    """The fault of a child that could still report."""
    kind, message = error["kind"], error["message"]
    if kind == "missing":
        package, extra = _PACKAGES[message]
        if python is None:
            advice = f"pip install 'ep-rewriter[{extra}]'"
        else:
            advice = f"{python} -m pip install {package}"
        return RuntimeFault(kind, f"{package} is not installed: {advice}")
    if any(sign in message for sign in _OUT_OF_MEMORY):
        kind = "memory"
    verb = "ran out of memory" if kind == "memory" else "failed"
    text = f"{RUNTIMES[ep]} {verb} while {stage(folder)}: {log.sentence(message)}"
    return Refused(text, message) if kind == "refused" else RuntimeFault(kind, text)
