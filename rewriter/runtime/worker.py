"""Run one ONNX Runtime job: ``python worker.py job.json``.

A script, not a module of the package: any Python that has the runtime and numpy can run it, also
one of another environment that holds an older runtime. ``child.py`` writes ``job.json``, keeps
whatever this process prints as its log, and reads the ``result.json`` left beside the job.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.runtime import worker_files as files
else:
    sys.path.append(str(Path(__file__).parent))  # last: what lies here hides no other module
    import worker_files as files

QNN_NAME = "QNNExecutionProvider"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
VERBOSE, WARNING = 0, 2


def work(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Create the session and run every feed; return what ``child.Result`` needs."""
    files.enter(folder, "loading the runtime")
    import onnxruntime as ort

    began = time.perf_counter()
    files.enter(folder, "creating the session")
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

    devices = qnn_devices(ort)
    if not devices:  # a library is registered once in a process, which may have several sessions
        ort.register_execution_provider_library(QNN_NAME, qnn.get_library_path())
        devices = qnn_devices(ort)
    if not devices:
        raise RuntimeError("onnxruntime-qnn finds no device on this machine")
    npus = [device for device in devices if device.device.type == ort.OrtHardwareDeviceType.NPU]
    settings = {"backend_path": qnn.get_qnn_htp_path(), **provider_options}
    options.add_provider_for_devices((npus or devices)[:1], settings)


def qnn_devices(ort: Any) -> list[Any]:
    """The devices of the QNN plugin, none before it is registered."""
    return [device for device in ort.get_ep_devices() if device.ep_name == QNN_NAME]


def model_source(job: dict[str, Any]) -> str | bytes:
    """The model's path or its name alone, or its bytes where the data lies elsewhere.

    ONNX Runtime before 1.32 honours the data folder only for a model given as bytes.
    """
    model = Path(job["model"])
    if job["by_name"]:
        os.chdir(model.parent)
        return model.name
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
    """Run one feed; the outputs go to a file."""
    files.enter(folder, f"running feed {number}")
    names = job["outputs"]
    if names is None:
        names = [output.name for output in session.get_outputs()]
    values = session.run(names, files.read_feed(feed))
    return files.write_outputs(folder / f"outputs{number}.npz", names, values)


def versions(ep: str) -> dict[str, str]:
    """The installed versions that took part."""
    import onnxruntime as ort

    found = {"onnxruntime": str(ort.__version__)}
    if ep == "qnn":
        found["onnxruntime-qnn"] = importlib.metadata.version("onnxruntime-qnn")
    return found


if __name__ == "__main__":
    files.main(Path(sys.argv[1]), work)
