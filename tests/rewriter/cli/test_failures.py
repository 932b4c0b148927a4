"""What gives way in the middle is one line and the right exit code; nothing is left behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from rewriter import component, placing, proof
from rewriter.cli import main
from rewriter.errors import RuntimeFault
from rewriter.parity import model as model_parity
from tests.command_line import DIMS, Capture, failure


def raising(error: BaseException) -> Callable[..., None]:
    """A stand-in that fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 6, "out of memory"),
        (RuntimeError("can't start new thread"), 6, "out of memory"),
        (OSError(errno.ENOSPC, "full"), 6, "no space is left in the temporary folder"),
        (OSError(errno.EACCES, "denied", "/x/y"), 2, "/x/y: denied"),
        (RuntimeFault("memory", "it ran out"), 6, "it ran out"),
        (RuntimeFault("missing", "onnxruntime is not installed"), 2, "is not installed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("what?"), 1, "internal error: ValueError: what? (--debug shows where)"),
    ],
)
@pytest.mark.parametrize("stage", ["lower", "check_sites", "estimate"])
def test_an_error_in_any_stage(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    stage: str,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    where = {"lower": component, "check_sites": proof, "estimate": placing}[stage]
    monkeypatch.setattr(where, stage, raising(error))
    words = [str(model), "--ep", "qnn", *DIMS, "--parity", "sites"]
    assert said in failure(capsys, *words, code=code)
    assert not list(away.iterdir())


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("memory", 6, "placing model.onnx: it stopped"),
        ("timeout", 0, "note: placement did not finish: it stopped; raise --budget"),
        ("missing", 0, "note: placement did not run: it stopped"),
        ("crash", 5, "the runtime failed: it stopped"),
    ],
)
def test_a_placement_that_cannot_finish(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    kind: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(placing.Placing, "unplaceable", lambda _: "")
    monkeypatch.setattr(placing, "place", raising(RuntimeFault(kind, "it stopped")))
    assert main([str(model), "--ep", "qnn", *DIMS, "--parity", "none"]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert bool(list(away.iterdir())) == (code != 6)


def test_debug_shows_where(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(component, "lower", raising(ValueError("what?")))
    with pytest.raises(ValueError, match="what"):
        main([str(model), "--ep", "qnn", *DIMS, "--debug"])


@pytest.mark.parametrize(("kind", "code"), [("timeout", 4), ("crash", 4), ("memory", 6)])
def test_a_comparison_that_cannot_finish(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: Path,
    away: Path,
    kind: str,
    code: int,
) -> None:
    fault = RuntimeFault(kind, "it stopped")
    monkeypatch.setattr(proof, "check_sites", lambda *_, **__: [])
    monkeypatch.setattr(model_parity, "_drift", raising(fault))
    assert main([str(model), "--ep", "qnn", *DIMS, "--no-place"]) == code
    captured = capsys.readouterr()
    assert "it stopped" in captured.out + captured.err
    if code == 4:
        assert "it could not be shown that the result is the same function" in captured.out
        assert "nothing was written" in captured.out
    assert not list(away.iterdir())
