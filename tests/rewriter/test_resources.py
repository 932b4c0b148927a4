"""What runs out, or is stopped, in the middle of writing: one line, its exit code, and no trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from tests.graphs import Builder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and signals of Unix")

SIZE = 1 << 29


def _hole(folder: Path, dtype: ir.DataType, *shape: int) -> ir.ExternalTensor:
    """Weights that take no room on the disk."""
    with (folder / "model.onnx.data").open("wb") as file:
        file.truncate(SIZE)
    return ir.ExternalTensor(
        "model.onnx.data", 0, SIZE, dtype, shape=ir.Shape(shape), name="w", base_dir=folder
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Half a gigabyte of weights that are copied as they are."""
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 1 << 13))
    weight = b.const("w", _hole(tmp_path, ir.DataType.FLOAT, 1 << 13, 1 << 14))
    y = b.op("Relu", b.op("MatMul", x, weight, name="xw"), name="y")
    ir.save(b.model([(y, ir.DataType.FLOAT, (1, 1 << 14))]), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Half a gigabyte of codes that are read to be put into another order."""
    b = Builder()
    k, n = 1 << 15, 1 << 15
    x = b.input("x", ir.DataType.FLOAT, (1, 1, k))
    codes = b.const("w", _hole(tmp_path, ir.DataType.UINT8, n, 1, k // 2))
    scales = b.const("scales", np.ones((n, 1), np.float32))
    sizes = {"K": k, "N": n, "bits": 4, "block_size": k}
    y = b.op("com.microsoft::MatMulNBits", x, codes, scales, name="y", **sizes)
    path = tmp_path / "model.onnx"
    ir.save(b.model([(y, ir.DataType.FLOAT, (1, 1, n))]), path)
    return path


def _start(model: Path, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    words = [str(model), "--ep", "onnx-standard", "--parity", "none", "-o", "out/deep"]
    code = "import sys; from rewriter.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=model.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def _ended(process: subprocess.Popen[str], folder: Path) -> tuple[int, list[str]]:
    """Exit code and errors of a run that has left nothing behind."""
    out, errors = process.communicate(timeout=120)
    assert out == ""
    assert not (folder / "out").exists()
    return process.returncode, [line for line in errors.splitlines() if not line.endswith("...")]


def _limit(name: str, value: int) -> Callable[[], None]:
    import resource

    number = getattr(resource, name)
    return lambda: resource.setrlimit(number, (value, value))


def test_the_disk_fills_up_while_it_is_written(model: Path) -> None:
    process = _start(model, _limit("RLIMIT_FSIZE", SIZE // 2))
    code, errors = _ended(process, model.parent)
    assert code == 6
    assert len(errors) == 1
    assert "the disk is full; nothing was written" in errors[0]


def test_memory_runs_out_while_it_is_written(packed: Path) -> None:
    process = _start(packed, _limit("RLIMIT_AS", SIZE + (48 << 20)))
    code, errors = _ended(process, packed.parent)
    assert code == 6
    assert len(errors) == 1
    assert "memory" in errors[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_while_it_is_written(model: Path, number: signal.Signals, code: int) -> None:
    process = _start(model)
    until = time.monotonic() + 60
    while not list(model.parent.glob("out/.rewrite-partial-*/*")):
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(number)
    ended, errors = _ended(process, model.parent)
    assert ended == code
    assert len(errors) == (number == signal.SIGINT)
