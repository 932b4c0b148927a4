"""Sessions that live in a child, and what becomes of them when it ends."""

from __future__ import annotations

import ast
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.errors import RuntimeFault
from rewriter.runtime import worker_wire as wire
from rewriter.runtime.child import Job, Refused
from rewriter.runtime.sessions import SESSION_WORKER, Sessions
from tests.rewriter.runtime.models import X, linear, save_linear

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


@pytest.mark.parametrize("ep", ["cpu", "openvino"])
def test_outputs_that_stay_are_inputs_of_the_next_run(
    ep: str, tmp_path: Path, scratch: Path
) -> None:
    first, second = (save_linear(tmp_path / name) for name in ("a.onnx", "b.onnx"))
    with Sessions(ep) as sessions:
        numbers = [sessions.open(Job(file, ep=ep)) for file in (first, second)]
        assert sessions.versions
        found = sessions.run(numbers[0], {"x": X}, kept={}, keep={"y": "hidden"}, give=["y"])
        np.testing.assert_allclose(found["y"], linear(X), atol=1e-5)
        assert sessions.run(numbers[1], {}, kept={"x": "hidden"}, keep={"y": "out"}, give=[]) == {}
        np.testing.assert_allclose(sessions.kept(["out"])["out"], linear(linear(X)), atol=1e-3)
        np.testing.assert_array_equal(sessions.kept(["hidden"])["hidden"], found["y"])
        sessions.keep({"given": 2 * X})
        sessions.zeros({"empty": ((1, 2, 0, 3), np.dtype("f2"))})
        kept = sessions.kept(["given", "empty"])
        np.testing.assert_array_equal(kept["given"], 2 * X)
        assert kept["empty"].shape == (1, 2, 0, 3)
        assert kept["empty"].dtype == np.float16
        found = sessions.run(numbers[0], {}, kept={"x": "given"}, keep={}, give=["y"])
        np.testing.assert_allclose(found["y"], linear(2 * X), atol=1e-5)
    assert not list(scratch.iterdir())


def test_an_error_is_one_sentence_and_the_child_goes_on(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a protobuf" * 20)
    with Sessions("cpu") as sessions:
        with pytest.raises(RuntimeFault, match=r"while creating the session of broken\.onnx: "):
            sessions.open(Job(broken))
        number = sessions.open(Job(save_linear(tmp_path / "m.onnx")))
        with pytest.raises(RuntimeFault, match=r"while running m\.onnx.*'x'"):
            sessions.run(number, {}, kept={}, keep={}, give=["y"])
        found = sessions.run(number, {"x": X}, kept={}, keep={}, give=["y"])
    np.testing.assert_allclose(found["y"], linear(X), atol=1e-5)


def test_what_openvino_does_not_read_is_refused(tmp_path: Path) -> None:
    model = ir.load(save_linear(tmp_path / "m.onnx"))
    model.graph.node(0).op_type = "Nonsense"
    ir.save(model, tmp_path / "m.onnx")
    with Sessions("openvino") as sessions, pytest.raises(Refused) as caught:
        sessions.open(Job(tmp_path / "m.onnx", ep="openvino"))
    assert "Nonsense" in caught.value.said


def test_what_the_runtime_prints_is_no_answer(tmp_path: Path) -> None:
    model = ir.load(save_linear(tmp_path / "m.onnx"))
    model.graph.node(0).op_type = "Nonsense"
    ir.save(model, tmp_path / "m.onnx")
    with Sessions("cpu") as sessions, pytest.raises(RuntimeFault, match="Nonsense"):
        sessions.open(Job(tmp_path / "m.onnx", verbose=True))


def _alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_nothing_outlives_the_context(tmp_path: Path, scratch: Path) -> None:
    pids = []

    def interrupted() -> None:
        with Sessions("cpu") as sessions:
            sessions.open(Job(save_linear(tmp_path / "m.onnx")))
            pids.append(sessions._child.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(_alive(pid) for pid in pids)
    assert not list(scratch.iterdir())


@posix
def test_a_child_that_dies_is_a_crash(tmp_path: Path) -> None:
    with Sessions("cpu") as sessions:
        number = sessions.open(Job(save_linear(tmp_path / "m.onnx")))
        os.kill(sessions._child.pid, signal.SIGSEGV)
        with pytest.raises(RuntimeFault, match=r"crashed with SIGSEGV while .*m\.onnx") as caught:
            sessions.run(number, {"x": X}, kept={}, keep={}, give=["y"])
        assert caught.value.kind == "crash"
        with pytest.raises(RuntimeFault, match="SIGSEGV"):
            sessions.kept(["y"])


@posix
def test_a_child_that_hangs_is_stopped(tmp_path: Path, scratch: Path) -> None:
    python = fake_python(tmp_path / "python", f"echo $$ > {tmp_path}/pid; sleep 60")
    began = time.monotonic()
    with Sessions("qnn", python=python, time_limit=0.5) as sessions:
        with pytest.raises(RuntimeFault, match=r"QNN was stopped after 0\.5 s while starting") as e:
            sessions.open(Job(tmp_path / "m.onnx", ep="qnn"))
        assert e.value.kind == "timeout"
    assert time.monotonic() - began < 30
    assert not _alive(int((tmp_path / "pid").read_text(encoding="utf-8")))
    assert not list(scratch.iterdir())


@posix
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("exit 3", "error"),
        ("kill -KILL $$", "memory"),
        ("echo std::bad_alloc >&2; kill -ABRT $$", "memory"),
        ("kill -FPE $$", "crash"),
    ],
)
def test_the_kinds_of_ends(script: str, kind: str, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", script)
    with Sessions("cpu", python=python) as sessions, pytest.raises(RuntimeFault) as caught:
        sessions.open(Job(tmp_path / "m.onnx"))
    assert caught.value.kind == kind


def test_a_runtime_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "raise ModuleNotFoundError('no', name='onnxruntime')", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Sessions("cpu") as sessions, pytest.raises(RuntimeFault, match="pip install") as caught:
        sessions.open(Job(tmp_path / "m.onnx"))
    assert caught.value.kind == "missing"
    missing = tmp_path / "nothing"
    with pytest.raises(RuntimeFault, match="cannot be started"), Sessions("cpu", python=missing):
        pass


@posix
def test_the_child_ends_when_we_do(tmp_path: Path) -> None:
    """Even killed, we leave no child: its stdin ends."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        sessions = Sessions("cpu").__enter__()
        sessions.open(Job(save_linear(tmp_path / "m.onnx")))
        os.write(write, str(sessions._child.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(write)
    os.waitpid(pid, 0)
    child = int(os.read(read, 20))
    os.close(read)
    end = time.monotonic() + 30
    while _alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_a_child_that_hangs_ends_when_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no state to read its stdin."""
    (tmp_path / "onnxruntime.py").write_text("import time\ntime.sleep(600)", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        sessions = Sessions("cpu", time_limit=600).__enter__()
        os.write(write, str(sessions._child.pid).encode())
        sessions.open(Job(tmp_path / "m.onnx"))
        os._exit(1)
    os.close(write)
    child = int(os.read(read, 20))
    os.close(read)
    time.sleep(1)
    assert _alive(child)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    end = time.monotonic() + 30
    while _alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a child holds")
def test_a_child_that_takes_too_much_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = "held = []\nwhile True:\n    held.append(b'x' * 2**26)"
    (tmp_path / "onnxruntime.py").write_text(taking, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Sessions("cpu", memory_limit=2**28) as sessions:
        with pytest.raises(RuntimeFault, match=r"at 0\.25 GB of memory while loading") as caught:
            sessions.open(Job(tmp_path / "m.onnx"))
        assert caught.value.kind == "memory"
        assert not _alive(sessions._child.pid)


def test_messages_come_as_they_went(tmp_path: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "a": np.arange(12, dtype=np.int32).reshape(3, 4).T,
        "b": np.zeros((2, 0, 3), np.float16),
        "c": np.array(True),
        "d": np.array([], np.int64),
    }
    with (tmp_path / "stream").open("w+b") as stream:
        wire.send(stream, {"do": "x"}, arrays)
        wire.send(stream, {}, {})
        stream.seek(0)
        first, second = wire.receive(stream), wire.receive(stream)
        assert wire.receive(stream) is None
        assert first is not None
        assert second == ({}, {})
        assert first[0] == {"do": "x"}
        for name, array in arrays.items():
            np.testing.assert_array_equal(first[1][name], array)
            assert (first[1][name].dtype, first[1][name].shape) == (array.dtype, array.shape)
        whole = stream.tell()
        for length in (3, 20, whole // 2):  # what was cut off is no message
            stream.seek(0)
            stream.truncate(length)
            assert wire.receive(stream) is None


def test_the_worker_imports_nothing_of_ours() -> None:
    found = set()
    names = ("session_worker", "quantize_worker", "worker_serve", "worker_wire")
    for name in names:
        source = SESSION_WORKER.with_name(f"{name}.py")
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
    # rewriter: for type checkers alone; workers beside them otherwise
    others = {"numpy", "onnxruntime", "onnxruntime_qnn", "openvino", "rewriter"}
    others |= {"worker_files", "worker_serve", "worker_wire"}
    assert found - sys.stdlib_module_names == others
