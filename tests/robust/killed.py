"""Kills a run at every step that it takes in the file system, and looks at what is left.

``python -m tests.robust.killed FOLDER WAY [STEP ...]``: a run is a fork of this process, which has
loaded all that is to be loaded. A step is an event of Python's audit hooks that changes files;
``SIGKILL`` comes just before it. A line of JSON for each, until a run reaches its end.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.cli import main
from tests.graphs import Builder

_CHANGING = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.truncate", "shutil.rmtree")
F32 = ir.DataType.FLOAT
_LEFT = ".rewrite-"
"""How all names begin that runs give to folders of their own."""


class Killed:
    """One way to write an output, in a folder made anew for each run.

    Args:
        home: an empty folder.
        way: to a ``new`` folder, ``over`` an earlier result, ``swap`` for the same with steps
            counted from where the earlier result leaves, or ``in-place``, which is the model's own
            folder.
    """

    def __init__(self, home: Path, way: str) -> None:
        self.model = home / "model"
        self.final = self.model if way == "in-place" else home / "results" / "out"
        self.first = ".rewrite-leaving-" if way == "swap" else ""
        self._home, self._way = home, way

    def words(self) -> list[str]:
        fast = ["--parity", "none", "--no-place", "--allow-stuck"]
        more = [] if self._way == "new" else ["--overwrite"]
        return [str(self.model / "model.onnx"), "--ep", "onnx-standard@22", *fast,
                "-o", str(self.final), *more]  # fmt: skip

    def begin(self) -> None:
        shutil.rmtree(self._home)
        self.model.mkdir(parents=True)
        b = Builder()
        x, w = b.input("x", F32, (1, 8)), b.const("w", np.ones((8, 80), np.float32))
        y = b.op("Relu", b.op("MatMul", x, w, name="y"), name="z")
        ir.save(b.model([(y, F32, (1, 80))]), self.model / "model.onnx", external_data="w.data")
        if self._way in {"over", "swap"}:
            self.final.mkdir(parents=True)
            (self.final / "model.onnx").write_bytes(b"old model")
            (self.final / "weights.bin").write_bytes(b"old weights")

    def content(self) -> dict[str, bytes]:
        """Files under the final name; those of folders of a run have another."""
        if not self.final.is_dir():
            return {}
        return {path.name: path.read_bytes() for path in self.final.iterdir() if path.is_file()}

    def left(self) -> list[str]:
        return sorted(path.name for path in self._home.rglob(f"{_LEFT}*"))


def fork(words: Sequence[str], step: int, first: str = "") -> tuple[int, str]:
    """The exit code of a run, or less than nothing, the signal that ended it, and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        if step:
            _kill_before(step, first)
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = main(words)
        os.write(write, said.getvalue().encode()[:4000])
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        text = told.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def _kill_before(step: int, first: str) -> None:
    """Kill this process at a step, counted from the first one whose path holds a word."""
    taken = 0

    def audit(event: str, given: Sequence[Any]) -> None:
        nonlocal taken
        flags = given[2] if event == "open" and isinstance(given[2], int) else 0
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in _CHANGING) and (taken or first in str(given[0])):
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def run(case: Killed, steps: Sequence[int] = ()) -> None:
    """Kill at each step, and tell of it."""
    case.begin()
    before = case.content()
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(case.words())
    assert code == 0, code
    after = case.content()
    original = {} if case.final == case.model else _files(case.model)
    for step in steps or range(1, 1000):
        case.begin()
        code, _ = fork(case.words(), step, case.first)
        if code >= 0:
            break
        now = case.content()
        state = "before" if now == before else "after" if now == after else "between"
        told = {
            "step": step, "state": state, "left": case.left(),
            "torn": [n for n, data in now.items() if data not in {before.get(n), after.get(n)}],
            "original": case.final == case.model or _files(case.model) == original,
        }  # fmt: skip
        again, said = fork(case.words(), 0)
        told |= {"again": again, "said": said, "same": case.content() == after}
        sys.stdout.write(json.dumps({**told, "left again": case.left()}) + "\n")


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


if __name__ == "__main__":
    run(Killed(Path(sys.argv[1]), sys.argv[2]), [int(word) for word in sys.argv[3:]])
