"""A process that reads damaged inputs: what it may not do, and how long and large it may get."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS, WAITED = 30, 600
"""For one input, of the processor and by the clock; without damage the slowest takes three."""
ROOM = 1 << 30
"""Bytes that one may need beyond what the process has; without damage the largest needs 50 MB."""
_FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec",
              "os.fork", "os.posix_spawn", "pickle.find_class", "webbrowser.open")  # fmt: skip


class Watch:
    """What the running process did that no input may make it do.

    Args:
        home: the folder of the inputs; files outside are read where Python's own are only.
        outside: a folder in it that no input has a right to.

    Attributes:
        seen: what was done, in words.
    """

    def __init__(self, home: Path, outside: Path) -> None:
        self.seen: list[str] = []
        self._home, self._outside = str(home.resolve()), str(outside.resolve())
        own = Path(__file__).resolve().parents[2]
        found = {sys.prefix, sys.base_prefix, str(own), tempfile.gettempdir(), *sys.path}
        self._own = tuple(os.path.realpath(p) for p in found if p)
        sys.addaudithook(self._audit)

    def _audit(self, event: str, given: Sequence[Any]) -> None:
        if event in _FORBIDDEN:
            self.seen.append(f"{event} {str(given)[:200]}")
        elif event == "open" and isinstance(given[0], str | bytes):
            path = os.path.realpath(os.fsdecode(given[0]))
            inside = path.startswith(self._home) and not path.startswith(self._outside)
            if not inside and (path.startswith(self._outside) or not path.startswith(self._own)):
                self.seen.append(f"opened {path}")


def limit_memory() -> None:
    """No more than :data:`ROOM` beyond what is mapped now: a bomb fails instead of all else."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def limit_time() -> None:
    """End the process, with a trace of where it was, if this is not called again in time."""
    faulthandler.register(signal.SIGPROF, chain=True)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    faulthandler.dump_traceback_later(WAITED, exit=True)


def no_limit_of_time() -> None:
    """The input is through."""
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_PROF, 0)
