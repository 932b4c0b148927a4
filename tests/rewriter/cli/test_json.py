"""Every subcommand prints one JSON object that says what it is; text goes to stderr alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rewriter.cli import main
from rewriter.cli.arguments import COMMANDS
from rewriter.report.data import SCHEMA
from tests.command_line import DIMS, FAST, Capture
from tests.htp import needs_qnn

NAMES = {
    "model": {"model", "target", "exit", "output", "graphs", "bytes"},
    "plan": {"target", "exit", "graphs", "notes"},
    "explain": {"ops"},
    "audit": {"ok", "drift", "dump"},
    "run": {"folder", "ep", "versions", "prompt", "ids", "text", "calls", "notes"},
    "probe": {"runs"},
    "matrix": {"eps"},
}
"""What each holds, at least: a name that goes breaks somebody's script, and raises the schema."""


def told(capsys: Capture, *words: str, code: int = 0) -> dict[str, Any]:
    """The one object that a command prints."""
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _words(command: str, model: Path) -> list[str]:
    out = str(model.parent.parent / "written")
    return {
        "model": [str(model), "--ep", "onnx-standard", *DIMS, *FAST, "-o", out],
        "plan": ["plan", str(model), "--ep", "qnn@2.7.0", *DIMS],
        "explain": ["explain", "Softmax", "--ep", "qnn@2.7.0"],
        "audit": ["audit", str(model), str(model)],
        "run": ["run", str(model.parent), "--ids", "5,9", "--max-new-tokens", "2"],
        "probe": ["probe", "--ep", "qnn", "--op", "Tanh"],
        "matrix": ["matrix", "--ep", "onnx-standard"],
    }[command]


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=needs_qnn if c == "probe" else ()) for c in COMMANDS]
)
def test_one_object(command: str, model: Path, capsys: Capture) -> None:
    found = told(capsys, *_words(command, model))
    assert (found["schema"], found["command"]) == (SCHEMA, command)
    assert found.keys() >= NAMES[command]


def test_a_plan_says_what_stays_and_why(model: Path, capsys: Capture) -> None:
    found = told(capsys, *_words("plan", model), "--disable", "attention_primitives", code=3)
    assert found["exit"] == 3
    assert found["target"] == {"ep": "qnn", "version": "2.7.0", "extrapolated": None, "options": {}}
    (graph,) = found["graphs"]
    (stuck,) = graph["stuck"]
    assert stuck["op"] == "com.microsoft::GroupQueryAttention"
    assert {"rule": "attention_primitives", "refused": "disabled by you"} in stuck["tried"]
    assert graph["ops_before"]["com.microsoft::MatMulNBits"] == 6


def test_a_run_says_what_its_report_says(model: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "report.json"
    printed = told(capsys, *_words("model", model), "--report", str(file))
    assert printed == json.loads(file.read_text(encoding="utf-8"))
    assert printed["exit"] == 0
    assert (Path(printed["output"]) / "model.onnx").is_file()


def test_tokens_are_those_of_the_text(model: Path, capsys: Capture) -> None:
    words = _words("run", model)
    assert main(words) == 0
    ids = capsys.readouterr().out.strip()
    found = told(capsys, *words)
    assert ",".join(map(str, found["ids"])) == ids
    assert (found["prompt"], found["text"]) == ([5, 9], None)
    assert found["calls"][0]["seconds"] > 0


@pytest.mark.parametrize("words", [["plan", "none.onnx", "--ep", "qnn"], ["matrix", "--ep", "x"]])
def test_what_is_wrong_is_on_stderr(words: list[str], capsys: Capture) -> None:
    assert main([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rewrite: ")
