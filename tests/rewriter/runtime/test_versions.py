from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from rewriter.errors import RuntimeFault
from rewriter.runtime.versions import installed


def test_this_process_and_a_child_agree() -> None:
    expected = importlib.metadata.version("onnxruntime")
    assert installed("ort-cpu") == expected
    assert installed("ort-cpu", Path(sys.executable)) == expected


def test_a_flavour_of_onnx_runtime_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "onnxruntime-gpu":
            return "1.40.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert installed("ort-cpu") == "1.40.0"
    assert installed("qnn") is None


def test_a_target_without_a_runtime_is_not_installed() -> None:
    assert installed("onnx-standard") is None
    assert installed("onnx-standard", Path(sys.executable)) is None


def test_an_interpreter_that_cannot_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match="no-python") as caught:
        installed("qnn", tmp_path / "no-python")
    assert caught.value.kind == "missing"
