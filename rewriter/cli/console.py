"""The two consoles: results on stdout, progress on stderr, either of which may be closed early."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)


class _Pipe(Console):
    """Leaves a closed pipe to its caller; rich itself would exit with 1, a fault of ours."""

    def on_broken_pipe(self) -> None:
        raise  # called while the error is handled


@contextmanager
def results() -> Generator[Console, None, None]:
    """The console of results. A reader that leaves early, as ``head`` does, is no error."""
    stream = sys.stdout or io.StringIO()  # there is none where it was closed from the start
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # names that the terminal's encoding lacks
    try:
        yield _Pipe(file=stream, highlight=False, soft_wrap=True)
        stream.flush()
    except BrokenPipeError:
        _discard(stream.fileno())
    except OSError:  # a full disk: what is held would fail again at exit, and change the code
        _discard(stream.fileno())
        raise


def progress(tail: str = " ...") -> Callable[[str], None]:
    """Says on stderr what begins; that nobody listens stops no work.

    Args:
        tail: ends each line; another one than dots for what is over.
    """
    console = _Pipe(stderr=True, highlight=False, soft_wrap=True)

    def say(words: str) -> None:
        try:
            console.print(f"{words}{tail}", style="dim", markup=False)
        except BrokenPipeError:
            console.quiet = True
            _discard(sys.stderr.fileno())

    return say


@contextmanager
def tracked(total: int) -> Generator[Callable[[str, int], None]]:
    """A bar of bytes and the weight that is being written; on terminals only."""
    console = _Pipe(stderr=True)
    columns = (
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[at]}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task, before = bar.add_task("", total=total, at=""), 0

        def told(name: str, size: int) -> None:
            nonlocal before
            bar.update(task, advance=before, at=escape(name))
            before = size

        yield told


def _discard(descriptor: int) -> None:
    """Let what Python still holds for a closed pipe go nowhere, instead of failing at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
