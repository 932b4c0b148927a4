"""Run one job of OpenVINO: ``python openvino_worker.py job.json``.

OpenVINO's own ONNX reader, and its CPU plugin in exact arithmetic. A script like ``worker.py``:
any Python that has openvino and numpy can run it.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.runtime import worker_files as files
else:
    sys.path.append(str(Path(__file__).parent))  # last: what lies here hides no other module
    import worker_files as files

DEVICE = "CPU"
# By default OpenVINO may round to bf16, and multiplies 4-bit weights with 8-bit activations.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
THREADS = "INFERENCE_NUM_THREADS"
RESULT_SUFFIX = "/sink_port_0"
# OpenVINO hands out any other type as numpy's next best, its bits reinterpreted.
NUMPY_TYPES = frozenset({"boolean", "f16", "f32", "f64"}) | {
    f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)
}


def work(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Read and compile the model and run every feed; return what ``child.Result`` needs."""
    files.enter(folder, "loading the runtime")
    import openvino as ov

    if job["external_data_dir"] is not None:
        raise ValueError("OpenVINO reads external data from the model's own folder only")
    core = ov.Core()
    began = time.perf_counter()
    files.enter(folder, "reading the model")
    model = read(core, job["model"])
    files.enter(folder, "compiling the model")
    compiled = core.compile_model(model, DEVICE, properties(job))
    created = time.perf_counter()
    runner = Runner(ov, compiled, [output_name(port) for port in model.outputs], job["outputs"])
    outputs = [runner.run(folder, number, feed) for number, feed in enumerate(job["feeds"])]
    return {
        "versions": {"openvino": importlib.metadata.version("openvino")},
        "assignment": [],
        "outputs": outputs,
        "seconds": {"create": created - began, "run": time.perf_counter() - created},
    }


def read(core: Any, file: str) -> Any:
    """The model as OpenVINO's reader translates it.

    Raises:
        Failure: of kind ``refused``: the reader names the ops it cannot translate.
    """
    try:
        return core.read_model(file)
    except RuntimeError as error:
        raise files.Failure("refused", str(error)) from error


def properties(job: dict[str, Any]) -> dict[str, str]:
    """Properties of the compiled model; the job's own win."""
    threads = {THREADS: str(job["threads"])} if job["threads"] else {}
    return {**EXACT, **threads, **job["provider_options"]}


def output_name(port: Any) -> str:
    """An output's ONNX name: its tensor may bear those of other values too, its node does not."""
    return str(port.get_node().get_friendly_name()).removesuffix(RESULT_SUFFIX)


class Runner:
    """Runs feeds on a compiled model, whose outputs come in the order of the model's."""

    def __init__(self, ov: Any, compiled: Any, names: list[str], wanted: list[str] | None) -> None:
        self.ov = ov
        # An input that is an output too may have lost its name, which its node still has.
        self.inputs = [
            frozenset({*port.get_names(), port.get_node().get_friendly_name()})
            for port in compiled.inputs
        ]
        self.names = names if wanted is None else wanted
        for name in self.names:
            if name not in names:
                raise ValueError(f"the model has no output {name!r}")
        self.positions = [names.index(name) for name in self.names]
        self.request = compiled.create_infer_request()

    def run(self, folder: Path, number: int, feed: dict[str, Any]) -> dict[str, Any]:
        """Run one feed. What the reader dropped because nothing uses it is not fed."""
        files.enter(folder, f"running feed {number}")
        self.infer(files.read_feed(feed))
        values = [self.output(*pair) for pair in zip(self.names, self.positions, strict=True)]
        return files.write_outputs(folder / f"outputs{number}.npz", self.names, values)

    def infer(self, arrays: dict[str, Any]) -> None:
        """Run arrays by the names of the inputs."""
        for index, names in enumerate(self.inputs):
            given = sorted(names & arrays.keys())
            if not given:  # OpenVINO would compute with what lies in memory
                raise ValueError(f"input {min(names)!r} is not fed")
            self.request.set_input_tensor(index, self.ov.Tensor(arrays[given[0]]))
        self.request.infer()

    def output(self, name: str, position: int) -> Any:
        """One output of the last run."""
        tensor = self.request.get_output_tensor(position)
        kind = tensor.get_element_type().get_type_name()
        if kind not in NUMPY_TYPES:
            raise TypeError(f"output {name!r} is {kind}, which numpy cannot hold")
        return tensor.data


if __name__ == "__main__":
    files.main(Path(sys.argv[1]), work)
