"""A child process that answers as long as somebody asks it, whatever it is asked for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from rewriter.errors import RuntimeFault
from rewriter.runtime import process
from rewriter.runtime import worker_wire as wire

Arrays = dict[str, npt.NDArray[Any]]


class Served:
    """A context that starts the child and ends it, whatever happens.

    Args:
        worker: the script, which serves with :func:`rewriter.runtime.worker_serve.serve`.
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``: the runtime that it imports.
        python: the interpreter whose runtime is used; this one when None.
        exact: without kernels that round activations.
        time_limit: seconds that one answer may take.
    """

    def __init__(
        self,
        worker: Path,
        ep: str,
        *,
        python: Path | None = None,
        exact: bool = True,
        time_limit: float = 600,
    ) -> None:
        self._worker = worker
        self._ep, self._python, self._exact, self._limit = ep, python, exact, time_limit
        self._late = False

    def __enter__(self) -> Self:
        self._home = TemporaryDirectory(prefix="rewrite-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name)
        try:
            job = json.dumps({"ep": self._ep})
            (self._folder / "job.json").write_text(job, encoding="utf-8")
            self._child = process.start(
                self._worker, self._folder, self._python, exact=self._exact, served=True
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

    def ask(
        self, head: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> tuple[dict[str, Any], Arrays]:
        """Send one request, and wait for its answer: what JSON can hold, and arrays.

        Raises:
            Refused: OpenVINO's reader does not translate a model.
            RuntimeFault: the runtime is missing, fails, crashes, or exceeds time or memory.
        """
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
