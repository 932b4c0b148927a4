"""Serve sessions of one runtime: ``python session_worker.py job.json``.

A script like ``worker.py``, whose sessions it creates: any Python that has the runtime and numpy
can run it. Arrays that a later run needs, caches before all, stay here by a key.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.runtime import openvino_worker, worker
    from rewriter.runtime import worker_files as files
    from rewriter.runtime import worker_serve as serving
else:

    def _beside(name):
        """A module of this folder, whatever else bears its name."""
        spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    files, _ = _beside("worker_files"), _beside("worker_wire")
    serving = _beside("worker_serve")
    worker, openvino_worker = _beside("worker"), _beside("openvino_worker")

Values = dict[str, Any]


class OnnxRuntime:
    """Sessions of ONNX Runtime; what is kept are its own values, which no run copies."""

    def __init__(self, ep: str) -> None:
        import onnxruntime as ort

        self.ort = ort
        if ep == "qnn":
            import onnxruntime_qnn  # ruff: ignore[unused-import] - say now that it is missing
        self.versions = worker.versions(ep)

    def open(self, job: dict[str, Any]) -> Any:
        """A session."""
        return worker.create_session(self.ort, job)

    def value(self, array: Any) -> Any:
        """An array as the runtime holds it."""
        return self.ort.OrtValue.ortvalue_from_numpy(array)

    def array(self, name: str, value: Any) -> Any:
        """A value as an array."""
        return files.storable(name, value.numpy())

    def run(self, session: Any, feeds: Values, names: list[str]) -> list[Any]:
        """Outputs by their names."""
        found: list[Any] = session.run_with_ort_values(names, feeds)
        return found


class OpenVino:
    """Models compiled by OpenVINO; outputs are copied, since a request reuses its own."""

    def __init__(self) -> None:
        import importlib.metadata

        import openvino as ov

        self.ov, self.core = ov, ov.Core()
        self.versions = {"openvino": importlib.metadata.version("openvino")}

    def open(self, job: dict[str, Any]) -> Any:
        """A compiled model, its outputs' names with it."""
        model = openvino_worker.read(self.core, job["model"])
        device, said = openvino_worker.DEVICE, openvino_worker.properties(job)
        compiled = self.core.compile_model(model, device, said)
        names = [openvino_worker.output_name(port) for port in model.outputs]
        return openvino_worker.Runner(self.ov, compiled, names, None)

    def value(self, array: Any) -> Any:
        """An array as the runtime holds it."""
        return array

    def array(self, name: str, value: Any) -> Any:
        """A value as an array."""
        return files.storable(name, value)

    def run(self, runner: Any, feeds: Values, names: list[str]) -> list[Any]:
        """Outputs by their names."""
        runner.infer(feeds)
        return [runner.output(name, runner.names.index(name)).copy() for name in names]


class Server:
    """Does what it is asked; ``folder`` is where it notes what it is at."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        self.folder = folder
        files.enter(folder, "loading the runtime")
        self.runtime = OpenVino() if job["ep"] == "openvino" else OnnxRuntime(job["ep"])
        self.sessions: list[tuple[str, Any]] = []
        self.kept: Values = {}

    def answer(self, head: dict[str, Any], arrays: Values) -> tuple[dict[str, Any], Values]:
        """One answer."""
        if head["do"] == "open":
            name = Path(head["job"]["model"]).name
            files.enter(self.folder, f"creating the session of {name}")
            session = self.runtime.open(head["job"])
            self.sessions.append((name, session))
            return {
                "session": len(self.sessions) - 1,
                "versions": self.runtime.versions,
                "assignment": worker.assignment(session) if head["job"]["assignment"] else [],
            }, {}
        if head["do"] == "close":
            self.sessions[head["session"]] = ("", None)
            return {}, {}
        if head["do"] == "keep":
            self.kept.update((key, self.runtime.value(array)) for key, array in arrays.items())
            return {}, {}
        if head["do"] == "zeros":
            self.zeros(head["shapes"])
            return {}, {}
        if head["do"] == "give":
            return {}, {key: self.runtime.array(key, self.kept[key]) for key in head["keys"]}
        return {}, self.run(head, arrays)

    def zeros(self, shapes: dict[str, tuple[list[int], str]]) -> None:
        """Keep arrays of zeros."""
        import numpy as np

        for key, (shape, dtype) in shapes.items():
            self.kept[key] = self.runtime.value(np.zeros(shape, dtype))

    def run(self, head: dict[str, Any], arrays: Values) -> Values:
        """Run a session: ``kept`` names its inputs that are here, ``keep`` outputs that stay."""
        name, session = self.sessions[head["session"]]
        files.enter(self.folder, f"running {name}")
        feeds = {name: self.runtime.value(array) for name, array in arrays.items()}
        feeds |= {name: self.kept[key] for name, key in head["kept"].items()}
        names = [*head["keep"], *head["give"]]
        found = dict(zip(names, self.runtime.run(session, feeds, names), strict=True))
        self.kept.update((key, found[name]) for name, key in head["keep"].items())
        return {name: self.runtime.array(name, found[name]) for name in head["give"]}


if __name__ == "__main__":
    serving.serve(Path(sys.argv[1]), Server)
