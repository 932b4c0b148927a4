"""Run one ONNX Runtime job: ``python worker.py job.json``.

A script, not a module of the package: any Python that has the runtime and numpy can run it, also
one of another environment that holds an older runtime. ``child.py`` writes ``job.json``, keeps
whatever this process prints as its log, and reads the ``result.json`` left beside the job.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any

QNN_NAME = "QNNExecutionProvider"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
VERBOSE, WARNING = 0, 2


def main(job_file: Path) -> None:
    """Do the job and leave ``result.json``, which holds an ``error`` when the job failed."""
    job = json.loads(job_file.read_text(encoding="utf-8"))
    try:
        result = work(job, job_file.parent)
    except Exception as error:
        result = {"error": describe(error)}
    part = job_file.with_name("result.part")
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(job_file.with_name("result.json"))  # never a half-written result


def work(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Create the session and run every feed; return what ``child.Result`` needs."""
    enter(folder, "loading the runtime")
    import onnxruntime as ort

    began = time.perf_counter()
    enter(folder, "creating the session")
    session = create_session(ort, job)
    created = time.perf_counter()
    outputs = [
        run_feed(session, job, folder, number, feed) for number, feed in enumerate(job["feeds"])
    ]
    return {
        "versions": versions(job["ep"]),
        "assignment": assignment(session) if job["assignment"] else [],
        "outputs": outputs,
        "seconds": {"create": created - began, "run": time.perf_counter() - created},
    }


def enter(folder: Path, stage: str) -> None:
    """Note what comes next: a process that dies or hangs can no longer say where it was."""
    (folder / "stage").write_text(stage, encoding="utf-8")


def create_session(ort: Any, job: dict[str, Any]) -> Any:
    """A session that never silently answers from another provider."""
    if job["verbose"]:
        ort.set_default_logger_severity(VERBOSE)
    options = session_options(ort, job)
    if job["ep"] == "qnn":
        add_qnn(ort, options, job["provider_options"])
        providers = None
    else:
        providers = ["CPUExecutionProvider"]
    # Python's session retries on the CPU, at creation and at run, unless both are told not to.
    session = ort.InferenceSession(
        model_source(job), options, providers=providers, enable_fallback=0
    )
    session.disable_fallback()
    ort.set_default_logger_severity(WARNING)
    return session


def session_options(ort: Any, job: dict[str, Any]) -> Any:
    """The job's session options."""
    options = ort.SessionOptions()
    options.log_severity_level = VERBOSE if job["verbose"] else WARNING
    options.intra_op_num_threads = job["threads"]
    if not job["optimize"]:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if job["assignment"]:
        options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
    if job["external_data_dir"] is not None:
        options.add_session_config_entry(DATA_FOLDER, job["external_data_dir"])
    for key, value in job["config"].items():
        options.add_session_config_entry(key, value)
    return options


def add_qnn(ort: Any, options: Any, provider_options: dict[str, str]) -> None:
    """Register the QNN plugin and select its NPU, or in emulation the one device it offers."""
    import onnxruntime_qnn as qnn

    ort.register_execution_provider_library(QNN_NAME, qnn.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == QNN_NAME]
    if not devices:
        raise RuntimeError("onnxruntime-qnn finds no device on this machine")
    npus = [device for device in devices if device.device.type == ort.OrtHardwareDeviceType.NPU]
    settings = {"backend_path": qnn.get_qnn_htp_path(), **provider_options}
    options.add_provider_for_devices((npus or devices)[:1], settings)


def model_source(job: dict[str, Any]) -> str | bytes:
    """The model's path, or its bytes where the data lies elsewhere.

    ONNX Runtime before 1.32 honours the data folder only for a model given as bytes.
    """
    model = Path(job["model"])
    return str(model) if job["external_data_dir"] is None else model.read_bytes()


def assignment(session: Any) -> list[dict[str, Any]]:
    """Which provider took which nodes, one entry per partition."""
    return [
        {
            "ep": part.ep_name,
            "nodes": [
                {"name": node.name, "op": op_name(node.domain, node.op_type)}
                for node in part.get_nodes()
            ],
        }
        for part in session.get_provider_graph_assignment_info()
    ]


def op_name(domain: str, op_type: str) -> str:
    """``domain::Type``; ai.onnx is left out."""
    return op_type if domain in {"", "ai.onnx"} else f"{domain}::{op_type}"


def run_feed(
    session: Any, job: dict[str, Any], folder: Path, number: int, feed: dict[str, Any]
) -> dict[str, Any]:
    """Run one feed; the outputs go to an npz file, keyed by position as names may be anything."""
    import numpy as np

    enter(folder, f"running feed {number}")
    with np.load(feed["file"], allow_pickle=False) as stored:
        inputs = {name: stored[str(index)] for index, name in enumerate(feed["names"])}
    names = job["outputs"]
    if names is None:
        names = [output.name for output in session.get_outputs()]
    arrays = [
        storable(name, value) for name, value in zip(names, session.run(names, inputs), strict=True)
    ]
    file = folder / f"outputs{number}.npz"
    np.savez(file, **{str(index): array for index, array in enumerate(arrays)})
    return {"file": str(file), "names": names}


def storable(name: str, value: Any) -> Any:
    """An array that an npz file holds without pickling."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise TypeError(f"output {name!r} is a {type(value).__name__}, not a tensor")
    return value.astype(str) if value.dtype.kind == "O" else value


def versions(ep: str) -> dict[str, str]:
    """The installed versions that took part."""
    import onnxruntime as ort

    found = {"onnxruntime": str(ort.__version__)}
    if ep == "qnn":
        found["onnxruntime-qnn"] = importlib.metadata.version("onnxruntime-qnn")
    return found


def describe(error: Exception) -> dict[str, str]:
    """The error as data: its kind, and the module's name or the message."""
    if isinstance(error, ImportError) and error.name in {"onnxruntime", "onnxruntime_qnn"}:
        return {"kind": "missing", "message": error.name}
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return {"kind": kind, "message": str(error) or type(error).__name__}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
