"""Sessions that live in one child process as long as somebody asks them.

What :mod:`rewriter.runtime.child` is for one job, this is for many runs whose outputs are the
inputs of later ones: those stay in the child.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.errors import RuntimeFault
from rewriter.runtime import process
from rewriter.runtime import worker_wire as wire
from rewriter.runtime.child import Job, job_fields

SESSION_WORKER = Path(__file__).with_name("session_worker.py")
Arrays = dict[str, npt.NDArray[Any]]


class Sessions:
    """Sessions of one runtime; a context that starts the child and ends it, whatever happens.

    Args:
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``.
        python: the interpreter whose runtime is used; this one when None.
        exact: without kernels that round activations.
        time_limit: seconds that one answer may take.

    Attributes:
        versions: distribution -> version, known once a session is open.
    """

    def __init__(
        self,
        ep: str,
        *,
        python: Path | None = None,
        exact: bool = True,
        time_limit: float = 600,
    ) -> None:
        self.versions: Mapping[str, str] = {}
        self._ep, self._python, self._exact, self._limit = ep, python, exact, time_limit
        self._late = False

    def __enter__(self) -> Sessions:
        self._home = TemporaryDirectory(prefix="rewrite-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name)
        try:
            job = json.dumps({"ep": self._ep})
            (self._folder / "job.json").write_text(job, encoding="utf-8")
            self._child = process.start(
                SESSION_WORKER, self._folder, self._python, exact=self._exact, served=True
            )
        except BaseException:
            self._home.cleanup()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self._end()
        finally:
            self._home.cleanup()

    def open(self, job: Job) -> int:
        """Create a session; returns its number.

        Raises:
            Refused: OpenVINO's reader does not translate the model.
            RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
        """
        head, _ = self._ask({"do": "open", "job": job_fields(job)})
        self.versions = head["versions"]
        return int(head["session"])

    def zeros(self, shapes: Mapping[str, tuple[Sequence[int], np.dtype[Any]]]) -> None:
        """Keep arrays of zeros in the child, by a key."""
        told = {key: (list(shape), dtype.str) for key, (shape, dtype) in shapes.items()}
        self._ask({"do": "zeros", "shapes": told})

    def keep(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays in the child, by a key."""
        self._ask({"do": "keep"}, arrays)

    def kept(self, keys: Sequence[str]) -> Arrays:
        """What the child keeps."""
        return self._ask({"do": "give", "keys": list(keys)})[1]

    def run(
        self,
        session: int,
        feeds: Mapping[str, npt.NDArray[Any]],
        *,
        kept: Mapping[str, str],
        keep: Mapping[str, str],
        give: Sequence[str],
    ) -> Arrays:
        """Run a session.

        Args:
            session: its number.
            feeds: inputs by name.
            kept: inputs that the child has, name to key.
            keep: outputs that stay there, name to key.
            give: names of the outputs to return.

        Raises:
            RuntimeFault: the runtime fails, crashes, or exceeds time or memory.
        """
        head = {"do": "run", "session": session, "kept": dict(kept), "keep": dict(keep)}
        return self._ask({**head, "give": list(give)}, feeds)[1]

    def _ask(
        self, head: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> tuple[dict[str, Any], Arrays]:
        timer = Timer(self._limit, self._stop)
        timer.daemon = True
        timer.start()
        try:
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            wire.send(self._child.stdin, head, arrays or {})
            answer = wire.receive(self._child.stdout)
        except OSError:
            answer = None
        finally:
            timer.cancel()
        if answer is None:
            raise self._death()
        if "error" in answer[0]:
            raise process.fault(self._ep, self._folder, answer[0]["error"], self._python)
        return answer

    def _stop(self) -> None:
        self._late = True
        process.kill(self._child)

    def _death(self) -> RuntimeFault:
        try:
            code = self._child.wait(timeout=self._limit)
        except subprocess.TimeoutExpired:
            self._late = True
        if self._late:
            return process.timeout(self._ep, self._folder, self._limit)
        return process.death(self._ep, self._folder, code)

    def _end(self) -> None:
        """End the child; it has nothing to save."""
        if self._child.poll() is None:
            process.kill(self._child)
        for pipe in (self._child.stdin, self._child.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what could not be sent any more
                pass
