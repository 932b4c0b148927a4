"""Run one job of a foreign runtime in a child process, so that nothing it does can hurt ours.

Some models kill the process that creates their session, and every runtime logs as it likes. The
child has its own process group and a time limit, and its output is a file that we read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rewriter.errors import BadInput, RuntimeFault
from rewriter.runtime import log

WORKER = Path(__file__).with_name("worker.py")
OPENVINO_WORKER = Path(__file__).with_name("openvino_worker.py")
Arrays = dict[str, "np.ndarray[Any, Any]"]

_RUNTIMES = {"cpu": "ONNX Runtime", "qnn": "QNN", "openvino": "OpenVINO"}
_PACKAGES = {
    "onnxruntime": ("onnxruntime", "ort"),
    "onnxruntime_qnn": ("onnxruntime-qnn", "qnn"),
    "openvino": ("openvino", "openvino"),
}
_OUT_OF_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "Unable to allocate")
_EXACT = {"ORT_QMOE_CPU_QNBIT_GEMM": "0"}
"""Without it ORT's QMoE rounds activations to 8 bits where the weights have 8-bit blocks."""
_NUMPY_KINDS = "biufcU"
_USER_DTYPE = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One session to create, and the feeds to run on it.

    Attributes:
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``. OpenVINO knows no configuration entries,
            optimization level, assignment or verbose log; it is all or nothing.
        external_data_dir: the folder of the model's external data where it is not the model's own.
        provider_options: options of the provider; QNN's ``backend_path`` and the properties that
            make OpenVINO's arithmetic exact are added when absent.
        config: session configuration entries.
        optimize: ONNX Runtime's default graph optimization; otherwise none at all, nor kernels
            that round activations.
        threads: threads inside an op; 0 leaves the choice to the runtime.
        outputs: the outputs to compute; all when None.
        assignment: record which provider took which node.
        verbose: log everything while the session is created, which yields ``Result.reasons``.
    """

    model: Path
    ep: str = "cpu"
    external_data_dir: Path | None = None
    provider_options: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    optimize: bool = False
    threads: int = 0
    feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]] = ()
    outputs: Sequence[str] | None = None
    assignment: bool = False
    verbose: bool = False


class Refused(RuntimeFault):
    """A reader does not translate a file; ``said`` is everything that it said."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__("error", message)
        self.said = said


@dataclass(frozen=True, slots=True)
class Assigned:
    """A node as the runtime partitioned it; ``op`` is ``domain::Type``, ai.onnx left out."""

    name: str
    op: str


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that one provider took together."""

    ep: str
    nodes: tuple[Assigned, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a job gave.

    Attributes:
        outputs: one dict of arrays for each feed.
        assignment: the partitions, when the job asked for them.
        reasons: node name -> why the provider refused it (QNN, verbose jobs).
        ddr: QNN's static memory traffic in bytes for each partition, where it prints it.
        errors: error lines the runtime logged although it went on.
        seconds: ``create`` and ``run``.
        versions: distribution -> version.
    """

    outputs: list[Arrays]
    assignment: tuple[Partition, ...]
    reasons: Mapping[str, str]
    ddr: tuple[Mapping[str, int], ...]
    errors: tuple[str, ...]
    seconds: Mapping[str, float]
    versions: Mapping[str, str]


def run(job: Job, *, python: Path | None = None, time_limit: float = 600) -> Result:
    """Run a job in a child process.

    Args:
        job: what to do.
        python: the interpreter whose runtime is used; this one when None.
        time_limit: seconds after which the child is killed.

    Raises:
        BadInput: an input array has a dtype that numpy itself cannot hold.
        Refused: OpenVINO's reader does not translate the model.
        RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
    """
    with TemporaryDirectory(prefix="rewrite-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _write_job(job, folder)
        code = _wait(job, folder, python, time_limit)
        with (folder / "log").open(encoding="utf-8", errors="replace") as lines:
            seen = log.read(lines)
        if not (folder / "result.json").exists():
            raise _death(job, folder, code, seen)
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if "error" in result:
            raise _fault(job, folder, result["error"], python)
        return _result(result, seen)


def _write_job(job: Job, folder: Path) -> None:
    data = job.external_data_dir
    feeds = [_write_feed(feed, folder / f"feed{n}.npz") for n, feed in enumerate(job.feeds)]
    fields = {
        "model": str(job.model.absolute()),
        "ep": job.ep,
        "external_data_dir": None if data is None else str(data.absolute()),
        "provider_options": dict(job.provider_options),
        "config": dict(job.config),
        "optimize": job.optimize,
        "threads": job.threads,
        "feeds": feeds,
        "outputs": None if job.outputs is None else list(job.outputs),
        "assignment": job.assignment,
        "verbose": job.verbose,
    }
    (folder / "job.json").write_text(json.dumps(fields), encoding="utf-8")


def _write_feed(feed: Mapping[str, np.ndarray[Any, Any]], file: Path) -> dict[str, Any]:
    for name, array in feed.items():
        if array.dtype.kind not in _NUMPY_KINDS or array.dtype.isbuiltin == _USER_DTYPE:
            raise BadInput(
                f"input {name!r} has dtype {array.dtype}, which no runtime's Python API takes; "
                "feed a numpy dtype and cast inside the model"
            )
    arrays = {str(index): array for index, array in enumerate(feed.values())}
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"file": str(file), "names": list(feed)}


def _start(
    worker: Path, folder: Path, python: Path | None, *, exact: bool
) -> subprocess.Popen[bytes]:
    interpreter = sys.executable if python is None else str(python)
    kernels = _EXACT if exact else {}
    with (folder / "log").open("wb") as output:
        try:
            return subprocess.Popen(
                [interpreter, str(worker), str(folder / "job.json")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Modules beside the worker stay off its import path, and what a runtime leaves
                # in the temporary folder goes with ours.
                env={**os.environ, **kernels, "PYTHONSAFEPATH": "1", "TMPDIR": str(folder)},
                start_new_session=True,
            )
        except OSError as error:
            raise RuntimeFault(
                "missing", f"{interpreter} cannot be started: {error.strerror}"
            ) from error


def _wait(job: Job, folder: Path, python: Path | None, time_limit: float) -> int:
    """Start the child and wait; it never outlives this call, whatever interrupts it."""
    worker = OPENVINO_WORKER if job.ep == "openvino" else WORKER
    process = _start(worker, folder, python, exact=not job.optimize)
    try:
        return process.wait(timeout=time_limit)
    except subprocess.TimeoutExpired:
        raise RuntimeFault(
            "timeout",
            f"{_RUNTIMES[job.ep]} was stopped after {time_limit:g} s while {_stage(folder)}; "
            "allow more time or try a smaller model",
        ) from None
    finally:
        if process.returncode is None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _stage(folder: Path) -> str:
    stage = folder / "stage"
    return stage.read_text(encoding="utf-8") if stage.exists() else "starting"


def _death(job: Job, folder: Path, code: int, seen: log.Log) -> RuntimeFault:
    """The fault of a child that ended without a result."""
    runtime, stage = _RUNTIMES[job.ep], _stage(folder)
    last = seen.errors[-1] if seen.errors else ""
    said = f"; its last error was: {last}" if last else ""
    if any(sign in seen.last for sign in _OUT_OF_MEMORY):
        return RuntimeFault("memory", f"{runtime} ran out of memory while {stage}: {seen.last}")
    crash = _crash(code)
    if crash == "SIGKILL":
        return RuntimeFault(
            "memory",
            f"{runtime} was killed (SIGKILL) while {stage}, most likely because memory ran out",
        )
    if crash is not None:
        return RuntimeFault("crash", f"{runtime} crashed with {crash} while {stage}{said}")
    return RuntimeFault("error", f"{runtime} failed while {stage}: {last or seen.last}")


def _crash(code: int) -> str | None:
    """The name of what killed a process: a signal, or an exception code of Windows."""
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exception 0x{code:08X}" if code >= 0x80000000 else None


def _fault(job: Job, folder: Path, error: Mapping[str, str], python: Path | None) -> RuntimeFault:
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
    text = f"{_RUNTIMES[job.ep]} {verb} while {_stage(folder)}: {log.sentence(message)}"
    return Refused(text, message) if kind == "refused" else RuntimeFault(kind, text)


def _result(result: Mapping[str, Any], seen: log.Log) -> Result:
    return Result(
        outputs=[_read_arrays(entry) for entry in result["outputs"]],
        assignment=tuple(
            Partition(part["ep"], tuple(Assigned(**node) for node in part["nodes"]))
            for part in result["assignment"]
        ),
        reasons=seen.reasons,
        ddr=seen.ddr,
        errors=seen.errors,
        seconds=result["seconds"],
        versions=result["versions"],
    )


def _read_arrays(entry: Mapping[str, Any]) -> Arrays:
    with np.load(entry["file"], allow_pickle=False) as stored:
        return {name: stored[str(index)] for index, name in enumerate(entry["names"])}
