"""Signals, and readers that leave: the command as a process cleans up and says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rewriter.cli.signals import tidy_on_signals
from tests.command_line import DIMS, FAST

REWRITE = [sys.executable, "-c", "import sys; from rewriter.cli import main; sys.exit(main())"]


def _start(model: Path, away: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    scratch = away.parent / "tmp"
    scratch.mkdir(exist_ok=True)
    command = [*REWRITE, str(model), "--ep", "qnn", *DIMS, *words]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]  # options are a dict
        command,
        cwd=away,
        env={**os.environ, "TMPDIR": str(scratch)},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_of_parity(
    model: Path, away: Path, number: signal.Signals, code: int
) -> None:
    process = _start(model, away, "-o", "a/b/out")
    assert process.stderr is not None
    assert any("comparing the whole model" in line for line in process.stderr)
    process.send_signal(number)
    process.send_signal(number)  # people press twice
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert "Traceback" not in err
    assert ("interrupted" in err) == (number == signal.SIGINT)
    assert not list(away.iterdir())
    left = {p.name for p in (away.parent / "tmp").iterdir()}
    assert left <= {".ses"}  # which importing ONNX Runtime writes


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_signal_does_not_cut_the_cleaning_short() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        tidy_on_signals()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        for number in numbers:
            signal.raise_signal(number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        tidy_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_reader_that_leaves_early(model: Path, away: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _start(model, away, *FAST, "-o", "out", "--report", "r.json", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Error" in err) == (0, False), err
    assert (away / "out" / "model.onnx").is_file()
    assert (away / "r.json").is_file()


def test_nobody_listens_to_progress(model: Path, away: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = _start(model, away, *FAST, "-o", "out", stderr=writing)
    os.close(writing)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "written to out" in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_results_that_cannot_be_written_are_no_success(model: Path, away: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = _start(model, away, *FAST, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "no space is left" in err.splitlines()[-1]
