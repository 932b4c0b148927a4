"""How a worker serves: it is asked through stdin and answers on stdout until stdin ends.

What the runtime prints goes to stderr, and so into the log. Any Python that has numpy runs this,
so it imports nothing of the package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rewriter.runtime import worker_files as files
    from rewriter.runtime import worker_wire as wire
else:  # beside this file, and found by whoever serves
    import worker_files as files
    import worker_wire as wire


class Answers(Protocol):
    """What a worker does for each request: a head and arrays, answered with the same."""

    def answer(
        self, head: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One answer."""
        ...


def serve(job_file: Path, make: Callable[[dict[str, Any], Path], Answers]) -> None:
    """Serve until nobody asks any more.

    Args:
        job_file: what the child was started with; its folder is where it notes what it is at.
        make: makes the server of a job at the first request, so that a runtime that is missing
            is an answer.
    """
    files.end_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server: Answers | None = None
    while (request := wire.receive(sys.stdin.buffer)) is not None:
        try:
            if server is None:
                job = json.loads(job_file.read_text(encoding="utf-8"))
                server = make(job, job_file.parent)
            head, arrays = server.answer(*request)
        except Exception as error:
            head, arrays = {"error": files.describe(error)}, {}
        try:
            wire.send(answers, head, arrays)
        except BrokenPipeError:
            return
