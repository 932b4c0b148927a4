"""The command line as tests call it: what it writes, and the one line that it fails with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewriter.cli import main

FAST = ["--parity", "none", "--no-place"]
DIMS = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
Capture = pytest.CaptureFixture[str]


def failure(capsys: Capture, *words: str, code: int = 2) -> str:
    """The one line that a command line fails with."""
    try:
        found = main(words)
    except SystemExit as error:  # how argparse leaves
        found = int(str(error.code))
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert (found, out, len(lines)) == (code, "", 1), err
    assert lines[0].startswith("rewrite")
    return lines[0]


def rewritten(model: Path, *more: str) -> int:
    """The exit code of writing a model to ``out`` and a report of it to ``report.json``."""
    folder = model.parent
    report = ("--report", str(folder / "report.json"))
    return main([str(model), "-o", str(folder / "out"), *report, *more])


def report_of(folder: Path) -> dict[str, Any]:
    """What the report says of the graph."""
    text = (folder / "report.json").read_text(encoding="utf-8")
    graph: dict[str, Any] = json.loads(text)["graphs"][0]
    return graph
