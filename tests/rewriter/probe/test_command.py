"""``rewrite probe`` as it is called: what it refuses, and what it prints."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rewriter.cli import main
from tests.command_line import failure
from tests.htp import needs_qnn

Capture = pytest.CaptureFixture[str]


def test_an_op_that_no_case_is_about(capsys: Capture) -> None:
    line = failure(capsys, "probe", "--ep", "qnn", "--op", "Softmaxx")
    assert line == "rewrite: --op Softmaxx: no quick case is about it"


def test_another_ep(capsys: Capture) -> None:
    assert "invalid choice: 'portable'" in failure(capsys, "probe", "--ep", "portable")


def test_replace_is_for_write(capsys: Capture) -> None:
    line = failure(capsys, "probe", "--ep", "qnn", "--replace")
    assert line == "rewrite: --replace: is for --write; without it nothing is written"


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_a_runtime_that_is_not_there(tmp_path: Path, capsys: Capture) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    line = failure(capsys, "probe", "--ep", "qnn", "--runtime", str(python))
    assert line == f"rewrite: onnxruntime-qnn is not installed in {python}"


@needs_qnn
def test_a_run_as_json_and_again_from_it(tmp_path: Path, capsys: Capture) -> None:
    assert main(["probe", "--ep", "qnn", "--op", "Tanh", "--json"]) == 0
    text = capsys.readouterr().out
    (found,) = json.loads(text)["runs"]
    assert found["ep"] == "qnn"
    assert found["counts"]["confirmed"] == len(found["cases"]) > 0
    file = tmp_path / "run.json"
    file.write_text(text, encoding="utf-8")
    assert main(["probe", "--ep", "qnn", "--op", "Tanh", "--result", str(file)]) == 0
    assert f"{len(found['cases'])} confirmed · 0 contradicted" in capsys.readouterr().out
