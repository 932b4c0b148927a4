"""Walls: who may import whom, and what stays out until it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_imports_point_one_way() -> None:
    """The contracts in pyproject.toml: capabilities <- rewriter <- frontends."""
    found = subprocess.run(
        [sys.executable, "-c", ("from importlinter.cli import lint_imports; "
         "raise SystemExit(lint_imports())")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in found.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import rewriter", {"onnx", "onnx_ir", "numpy", "onnxruntime", "rich"}),
        ("import rewriter.rules", {"onnxruntime"}),
        ("import frontends", {"onnx", "numpy", "onnxruntime"}),
        ("import rewriter.pipeline", {"onnxruntime", "onnxruntime_qnn", "onnxscript"}),
    ],
)
def test_heavy_imports_are_late(code: str, absent: set[str]) -> None:
    assert not _loaded_after(code) & absent


def test_top_level_holds_what_the_design_names() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    top = {name.partition("/")[0] for name in tracked}
    assert {name for name in top if not name.startswith(".")} == {
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "capabilities", "fixtures",
        "frontends", "pyproject.toml", "rewriter", "tests",
    }  # fmt: skip
