"""Run one job of a foreign runtime in a child process, so that nothing it does can hurt ours.

Some models kill the process that creates their session, and every runtime logs as it likes. The
child has its own process group and a time limit, and its output is a file that we read.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rewriter.errors import BadInput
from rewriter.runtime import log, process
from rewriter.runtime.process import Refused

__all__ = ["Assigned", "Job", "Partition", "Refused", "Result", "job_fields", "partitions", "run"]

WORKER = Path(__file__).with_name("worker.py")
OPENVINO_WORKER = Path(__file__).with_name("openvino_worker.py")

Arrays = dict[str, "np.ndarray[Any, Any]"]

_NUMPY_KINDS = "biufcU"
_USER_DTYPE = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One session to create, and the feeds to run on it.

    Attributes:
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``. OpenVINO knows no configuration entries,
            optimization level, assignment or verbose log; it is all or nothing.
        external_data_dir: the folder of the model's external data where it is not the model's own.
        by_name: the model is opened by its name from within its folder, so that whatever a
            runtime makes of the path (QNN: names in a compiled context) is the same in any folder.
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
    by_name: bool = False
    provider_options: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    optimize: bool = False
    threads: int = 0
    feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]] = ()
    outputs: Sequence[str] | None = None
    assignment: bool = False
    verbose: bool = False


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
        seen = process.seen(folder)
        if not (folder / "result.json").exists():
            raise process.death(job.ep, folder, code)
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if "error" in result:
            raise process.fault(job.ep, folder, result["error"], python)
        return _result(result, seen)


def job_fields(job: Job) -> dict[str, Any]:
    """What a worker is told of a job, its feeds left out."""
    data = job.external_data_dir
    return {
        "model": str(job.model.absolute()),
        "by_name": job.by_name,
        "ep": job.ep,
        "external_data_dir": None if data is None else str(data.absolute()),
        "provider_options": dict(job.provider_options),
        "config": dict(job.config),
        "optimize": job.optimize,
        "threads": job.threads,
        "outputs": None if job.outputs is None else list(job.outputs),
        "assignment": job.assignment,
        "verbose": job.verbose,
    }


def partitions(told: Sequence[Mapping[str, Any]]) -> tuple[Partition, ...]:
    """An assignment as a worker tells it."""
    return tuple(
        Partition(part["ep"], tuple(Assigned(**node) for node in part["nodes"])) for part in told
    )


def _write_job(job: Job, folder: Path) -> None:
    feeds = [_write_feed(feed, folder / f"feed{n}.npz") for n, feed in enumerate(job.feeds)]
    fields = {**job_fields(job), "feeds": feeds}
    (folder / "job.json").write_text(json.dumps(fields), encoding="utf-8")


def _write_feed(feed: Mapping[str, np.ndarray[Any, Any]], file: Path) -> dict[str, Any]:
    for name, array in feed.items():
        if array.dtype.kind not in _NUMPY_KINDS or array.dtype.isbuiltin == _USER_DTYPE:
            raise BadInput(
                f"input {name!r} has dtype {array.dtype}, which no runtime's Python API takes; "
                "feed a numpy dtype and cast inside the model"
            )
    arrays = {str(index): array for index, array in enumerate(feed.values())}
    np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's stub takes keywords for allow_pickle
    return {"file": str(file), "names": list(feed)}


def _wait(job: Job, folder: Path, python: Path | None, time_limit: float) -> int:
    """Start the child and wait; it never outlives this call, whatever interrupts it."""
    worker = OPENVINO_WORKER if job.ep == "openvino" else WORKER
    child = process.start(worker, folder, python, exact=not job.optimize)
    try:
        return child.wait(timeout=time_limit)
    except subprocess.TimeoutExpired:
        raise process.timeout(job.ep, folder, time_limit) from None
    finally:
        if child.returncode is None:
            process.kill(child)


def _result(result: Mapping[str, Any], seen: log.Log) -> Result:
    return Result(
        outputs=[_read_arrays(entry) for entry in result["outputs"]],
        assignment=partitions(result["assignment"]),
        reasons=seen.reasons,
        ddr=seen.ddr,
        errors=seen.errors,
        seconds=result["seconds"],
        versions=result["versions"],
    )


def _read_arrays(entry: Mapping[str, Any]) -> Arrays:
    with np.load(entry["file"], allow_pickle=False) as stored:
        return {name: stored[str(index)] for index, name in enumerate(entry["names"])}
