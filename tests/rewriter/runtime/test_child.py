from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import ml_dtypes
import numpy as np
import pytest

from rewriter.errors import BadInput, RuntimeFault
from rewriter.runtime import child
from rewriter.runtime.child import Job, run
from tests.rewriter.runtime.models import WIDTH, X, linear, save_linear, save_with_cpu_op

# A runtime that fails unless it is used as every version of the real one must be.
STRICT_RUNTIME = """
__version__ = "0"

def set_default_logger_severity(level):
    pass

class GraphOptimizationLevel:
    ORT_DISABLE_ALL = 0

class SessionOptions:
    def add_session_config_entry(self, key, value):
        pass

class InferenceSession:
    def __init__(self, source, options, providers=None, enable_fallback=1):
        if enable_fallback:
            raise RuntimeError("would retry the creation on the CPU")
        if not isinstance(source, bytes):
            raise RuntimeError("the data folder is ignored for a path before 1.32")
        self.fallback = True

    def disable_fallback(self):
        self.fallback = False

    def get_outputs(self):
        return []

    def run(self, names, feed):
        if self.fallback:
            raise RuntimeError("would retry the run on the CPU")
        return []
"""

posix = pytest.mark.skipif(os.name != "posix", reason="shell scripts and signals")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which every temporary folder is made, so that leftovers show."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def fake_python(path: Path, script: str) -> Path:
    """An interpreter that does something else with the worker."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fault(job: Job, python: Path | None = None, time_limit: float = 60) -> RuntimeFault:
    with pytest.raises(RuntimeFault) as caught:
        run(job, python=python, time_limit=time_limit)
    assert "\n" not in str(caught.value)
    assert ".cc:" not in str(caught.value)
    return caught.value


def test_outputs_equal_numpy_for_every_feed(tmp_path: Path, scratch: Path) -> None:
    job = Job(save_linear(tmp_path / "m.onnx"), feeds=[{"x": X}, {"x": -2 * X}])
    result = run(job)
    assert [list(arrays) for arrays in result.outputs] == [["y"], ["y"]]
    np.testing.assert_allclose(result.outputs[0]["y"], linear(X), atol=1e-5)
    np.testing.assert_allclose(result.outputs[1]["y"], linear(-2 * X), atol=1e-5)
    assert set(result.seconds) == {"create", "run"}
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("name", ["file", "a/../b", "0"])
def test_any_output_name_survives_the_trip(tmp_path: Path, name: str) -> None:
    job = Job(save_linear(tmp_path / "m.onnx", output=name), feeds=[{"x": X}])
    np.testing.assert_allclose(run(job).outputs[0][name], linear(X), atol=1e-5)


def test_only_the_named_outputs_are_computed(tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx")
    assert list(run(Job(model, feeds=[{"x": X}], outputs=["y"])).outputs[0]) == ["y"]
    assert "nope" in str(fault(Job(model, feeds=[{"x": X}], outputs=["nope"])))


def test_unoptimized_is_the_model_as_written(tmp_path: Path) -> None:
    model = save_linear(tmp_path / "m.onnx")
    written, optimized = (
        [node.name for part in run(job).assignment for node in part.nodes]
        for job in (Job(model, assignment=True), Job(model, assignment=True, optimize=True))
    )
    assert written == ["product", "sum"]
    assert "sum" not in optimized


def test_an_op_outside_ai_onnx_carries_its_domain(tmp_path: Path) -> None:
    job = Job(save_with_cpu_op(tmp_path / "m.onnx"), assignment=True)
    ops = [node.op for part in run(job).assignment for node in part.nodes]
    assert ops == ["MatMul", "Add", "com.microsoft::SkipSimplifiedLayerNormalization", "Sigmoid"]


def test_external_data_may_lie_in_another_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "weights"
    elsewhere.mkdir()
    model = save_linear(tmp_path / "m.onnx", data="m.data")
    (tmp_path / "m.data").rename(elsewhere / "m.data")
    feeds = [{"x": X}]
    outputs = run(Job(model, external_data_dir=elsewhere, feeds=feeds)).outputs
    np.testing.assert_allclose(outputs[0]["y"], linear(X), atol=1e-5)
    assert "External data path" in str(fault(Job(model, feeds=feeds)))


def test_a_session_never_retries_on_the_cpu_and_old_runtimes_find_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text(STRICT_RUNTIME, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    model = save_linear(tmp_path / "m.onnx")
    result = run(Job(model, external_data_dir=tmp_path, feeds=[{"x": X}]))
    assert result.versions == {"onnxruntime": "0"}


def test_a_corrupt_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a protobuf" * 20)
    caught = fault(Job(tmp_path / "m.onnx"))
    assert caught.kind == "error"
    assert "creating the session" in str(caught)
    assert "Protobuf parsing failed" in str(caught)


def test_a_missing_input_is_named_with_its_feed(tmp_path: Path) -> None:
    caught = fault(Job(save_linear(tmp_path / "m.onnx"), feeds=[{"x": X}, {}]))
    assert caught.kind == "error"
    assert "running feed 1" in str(caught)
    assert "'x'" in str(caught)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.int4])
def test_a_dtype_outside_numpy_is_refused_by_name(tmp_path: Path, dtype: type) -> None:
    job = Job(save_linear(tmp_path / "m.onnx"), feeds=[{"x": X.astype(dtype)}])
    with pytest.raises(BadInput, match=f"'x' has dtype {np.dtype(dtype)}"):
        run(job)


@posix
def test_a_crash_names_its_signal_and_the_last_error(tmp_path: Path) -> None:
    python = fake_python(
        tmp_path / "python",
        'echo "[E:onnxruntime:, x.cc:7 F] the last straw"\n'
        'printf "creating the session" > "$(dirname "$2")/stage"\n'
        "kill -FPE $$",
    )
    caught = fault(Job(tmp_path / "m.onnx"), python)
    assert caught.kind == "crash"
    assert "SIGFPE while creating the session" in str(caught)
    assert "the last straw" in str(caught)


@posix
@pytest.mark.parametrize(
    "script",
    ["kill -KILL $$", "echo terminate called: std::bad_alloc; kill -ABRT $$"],
)
def test_running_out_of_memory_is_no_crash(tmp_path: Path, script: str) -> None:
    caught = fault(Job(tmp_path / "m.onnx"), fake_python(tmp_path / "python", script))
    assert caught.kind == "memory"


@posix
def test_an_allocation_that_fails_is_reported_as_memory(tmp_path: Path) -> None:
    error = json.dumps({"error": {"kind": "error", "message": "Failed to allocate memory for x"}})
    script = f'echo \'{error}\' > "$(dirname "$2")/result.json"'
    assert fault(Job(tmp_path / "m.onnx"), fake_python(tmp_path / "python", script)).kind == (
        "memory"
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return (
        not stat.exists() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    )


def _dies(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not _alive(pid)


def sleeper(tmp_path: Path) -> tuple[Path, Path]:
    """An interpreter that starts a process of its own and hangs, and where that one's id goes."""
    pid = tmp_path / "pid"
    script = f"sleep 300 &\necho $! > '{pid}.part'\nmv '{pid}.part' '{pid}'\nwait"
    return fake_python(tmp_path / "python", script), pid


@posix
def test_a_hanging_child_is_stopped_with_all_it_started(tmp_path: Path, scratch: Path) -> None:
    python, pid = sleeper(tmp_path)
    caught = fault(Job(tmp_path / "m.onnx"), python, time_limit=2)
    assert caught.kind == "timeout"
    assert "after 2 s while starting" in str(caught)
    assert _dies(int(pid.read_text(encoding="utf-8")))
    assert not list(scratch.iterdir())


@posix
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, scratch: Path) -> None:
    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    python, pid = sleeper(tmp_path)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(Job(tmp_path / "m.onnx"), python=python, time_limit=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert _dies(int(pid.read_text(encoding="utf-8")))
    assert not list(scratch.iterdir())


@posix
def test_a_missing_runtime_is_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    bare = fake_python(tmp_path / "python", f'exec "{sys.executable}" -S -E "$@"')
    caught = fault(Job(tmp_path / "m.onnx"), bare)
    assert caught.kind == "missing"
    assert str(caught).endswith(f"{bare} -m pip install onnxruntime")


def test_an_interpreter_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    caught = fault(Job(tmp_path / "m.onnx"), tmp_path / "no-python")
    assert caught.kind == "missing"
    assert "no-python" in str(caught)


def test_nothing_reaches_our_own_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = Job(save_linear(tmp_path / "m.onnx"), feeds=[{"x": X[:, :, : WIDTH // 2]}], verbose=True)
    fault(job)
    assert capfd.readouterr() == ("", "")


def test_importing_us_imports_no_runtime() -> None:
    code = (
        "import sys, rewriter.placement, rewriter.runtime.child, rewriter.runtime.versions;"
        "print([name for name in sys.modules if name.startswith(('onnxruntime', 'openvino'))])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    assert answer.stdout.strip() == "[]"


class _NotForTypes(ast.NodeTransformer):
    """Leaves out what only type checkers read."""

    def visit_If(self, node: ast.If) -> list[ast.stmt] | ast.If:
        for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return node.orelse if for_types else node


@pytest.mark.parametrize(
    ("worker", "needs"),
    [
        (child.WORKER, {"numpy", "onnxruntime", "onnxruntime_qnn"}),
        (child.OPENVINO_WORKER, {"numpy", "openvino"}),
    ],
)
def test_a_worker_stands_alone(worker: Path, needs: set[str]) -> None:
    sources = [worker, worker.with_name("worker_files.py")]
    imported = set().union(*(_imported(source) for source in sources))
    assert imported - sys.stdlib_module_names == needs | {"worker_files"}


def _imported(source: Path) -> set[str]:
    tree = _NotForTypes().visit(ast.parse(source.read_text(encoding="utf-8")))
    return {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
        )
    }
