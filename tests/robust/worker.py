"""Reads damaged inputs one after the other, and tells of each what became of it.

``python -m tests.robust.worker KIND SEED FIRST COUNT FOLDER`` writes a line of JSON per input. An
input that ends the process is the one after the last line; the caller goes on behind it.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from rewriter.cli import main
from tests.robust.kinds import FIXTURES, KINDS, words
from tests.robust.watched import Watch, limit_memory, limit_time, no_limit_of_time

_CODES = {0, 2, 3}
"""What a command over a damaged input may end with: it is fine, refused, or has nodes left."""
_SECRET = b"nobody but its owner reads this" * 4096


class _Begun(BaseException):  # not an error: nothing may catch it
    """The runtime would be started, in a child process that nothing can hurt."""


def work(kind: str, seed: int, first: int, count: int, home: Path) -> None:
    """Read inputs of a kind, after a good one that loads what is loaded once."""
    outside = home / "outside"
    outside.mkdir(parents=True, exist_ok=True)
    (outside / "secret.bin").write_bytes(_SECRET)
    _stop_before_the_runtime()
    _warm(home / "warm")
    watch = Watch(home, outside)
    limit_memory()
    for number in range(first, first + count):
        folder = home / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        rng = np.random.default_rng([seed, number, sorted(KINDS).index(kind)])
        path = KINDS[kind](rng, folder)
        if rng.random() < 0.3:
            _links(folder, outside)
        line = words(rng, kind, path, home / "out")
        limit_time()
        told = _judged(line, home, watch)
        no_limit_of_time()
        sys.stdout.write(json.dumps({"number": number, "words": line, **told}) + "\n")
        sys.stdout.flush()


def _links(folder: Path, outside: Path) -> None:
    (folder / "link.bin").symlink_to(outside / "secret.bin")
    (folder / "folder").symlink_to(outside)


def _judged(line: list[str], home: Path, watch: Watch) -> dict[str, Any]:
    before = {path.name for path in home.iterdir()}
    watch.seen.clear()
    code, said = _run(line)
    findings = [*watch.seen]
    lines = [text for text in said.splitlines() if not text.endswith("...")]
    if code not in _CODES:
        findings.append(f"exit code {code}: {lines[-1] if lines else ''}")
        findings += [_trace(line)] if code == 1 else []
    if "Traceback" in said:
        findings.append(said)
    if code == 2 and len(lines) != 1 and "--dim" not in said:
        findings.append(f"{len(lines)} lines: {said[:500]}")
    left = {path.name for path in home.iterdir()} - before - {"out"}
    findings += [f"left {name}" for name in sorted(left)]
    if (home / "out").exists():
        if code == 2:
            findings.append("refused, and an output is there")
        shutil.rmtree(home / "out")
    return {"code": code, "said": lines[-1][:300] if lines else "", "findings": findings}


def _run(line: list[str]) -> tuple[int, str]:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(line)
        except SystemExit as left:
            code = int(str(left.code))
        except _Begun:
            code = 0
    return code, errors.getvalue()


def _trace(line: list[str]) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main([*line, "--debug"])
    except Exception:
        return traceback.format_exc()
    return "no error the second time"


def _stop_before_the_runtime() -> None:
    from rewriter.cli import run

    def begin(*_: object, **__: object) -> None:
        raise _Begun

    vars(run)["opened"] = begin


def _warm(folder: Path) -> None:
    words = ["--ep", "onnx-standard", "--parity", "none", "--no-place", "--allow-stuck"]
    code, said = _run([str(FIXTURES / "decoder"), *words, "-o", str(folder)])
    assert code == 0, said
    shutil.rmtree(folder)


if __name__ == "__main__":
    given_seed, given_first, given_count = map(int, sys.argv[2:5])
    work(sys.argv[1], given_seed, given_first, given_count, Path(sys.argv[5]))
