"""A child process that answers as long as somebody asks it, whatever it is asked for."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from rewriter.errors import RuntimeFault
from rewriter.runtime import process
from rewriter.runtime import worker_wire as wire

Arrays = dict[str, npt.NDArray[Any]]

_LOOK = 0.2
"""Seconds between two looks at a child that has not answered."""


class Served:
    """A context that starts the child and ends it, whatever happens.

    Args:
        worker: the script, which serves with :func:`rewriter.runtime.worker_serve.serve`.
        ep: ``"cpu"``, ``"qnn"`` or ``"openvino"``: the runtime that it imports.
        python: the interpreter whose runtime is used; this one when None.
        exact: without kernels that round activations.
        time_limit: seconds that one answer may take.
        memory_limit: bytes that the child may hold while it answers (Linux); None for any.
    """

    def __init__(
        self,
        worker: Path,
        ep: str,
        *,
        python: Path | None = None,
        exact: bool = True,
        time_limit: float = 600,
        memory_limit: int | None = None,
    ) -> None:
        self._worker = worker
        self._ep, self._python, self._exact, self._limit = ep, python, exact, time_limit
        self._memory = memory_limit
        self._late = self._large = False

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
        answered = Event()
        Thread(target=self._watch, args=(answered,), daemon=True).start()
        try:
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            wire.send(self._child.stdin, head, arrays or {})
            answer = wire.receive(self._child.stdout)
        except OSError:
            answer = None
        finally:
            answered.set()
        if answer is None:
            raise self._death()
        if "error" in answer[0]:
            raise process.fault(self._ep, self._folder, answer[0]["error"], self._python)
        return answer

    def _watch(self, answered: Event) -> None:
        """Kill the child where it takes too long or too much, until it has answered."""
        end = time.monotonic() + self._limit
        while not answered.wait(max(0, min(_LOOK, end - time.monotonic()))):
            self._late = time.monotonic() >= end
            if self._memory is not None:
                self._large = process.resident(self._child) > self._memory
            if self._late or self._large:
                process.kill(self._child)
                return

    def _death(self) -> RuntimeFault:
        try:
            code = self._child.wait(timeout=self._limit)
        except subprocess.TimeoutExpired:
            self._late = True
        if self._large:
            assert self._memory is not None
            return process.too_large(self._ep, self._folder, self._memory)
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
