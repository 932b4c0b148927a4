"""What a run that was killed leaves where it wrote: recognized by its name, and put right.

Nothing can be tidied by a process that ``kill -9`` or a power cut ends, so the next run to the
same output does it. A run fills ``.rewrite-partial-OUTPUT-TOKEN`` and holds a lock on it, which the
system releases when the process ends: a folder of that name without a lock was abandoned. Files
that an output folder held before wait beside the new ones while the two are swapped, first in
``.rewrite-leaving-TOKEN``; once all have left it is called ``.rewrite-replaced-TOKEN``. So an
interrupted swap says which way to go: back, or on to the end.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewriter.errors import BadInput

if sys.platform != "win32":
    import fcntl

_PARTIAL, _LEAVING, _REPLACED = ".rewrite-partial-", ".rewrite-leaving-", ".rewrite-replaced-"
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Claim:
    """A folder of a run, and the lock that says that the run goes on.

    Attributes:
        folder: newly made.
        lock: descriptor of the folder; none where the system has no such locks.
    """

    folder: Path
    lock: int | None

    @property
    def token(self) -> str:
        """What names of the run's other folders end with."""
        return self.folder.name.rpartition("-")[2]

    def release(self) -> None:
        """Let the lock go."""
        if self.lock is not None:
            os.close(self.lock)


def claim(home: Path, final: Path) -> Claim:
    """Make a folder for a run to fill.

    Args:
        home: where it is made.
        final: the output folder.

    Raises:
        OSError: it cannot be made.
    """
    for _ in range(_TRIES):
        folder = home / f"{_PARTIAL}{_label(final)}-{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            lock = _locked(folder)
        except OSError:  # another run took it for abandoned before it was locked
            continue
        if lock is None or folder.exists():
            return Claim(folder, lock)
        os.close(lock)
    raise FileExistsError(f"{home}: every folder that is made there is removed at once")


def aside_of(claimed: Claim, final: Path, *, all_left: bool = False) -> Path:
    """Where files of an output folder wait while a swap goes on.

    Args:
        claimed: the run that swaps.
        final: the output folder.
        all_left: no file is left of those that were there before.
    """
    return final / f"{_REPLACED if all_left else _LEAVING}{claimed.token}"


def is_of_a_run(path: Path) -> bool:
    """Whether a folder has a name that only runs give."""
    return path.name.startswith((_PARTIAL, _LEAVING, _REPLACED))


def check_whole(folder: Path) -> None:
    """Whether a folder that is read is not one whose files are being swapped.

    Raises:
        BadInput: a swap was begun and not ended.
    """
    if any(path.name.startswith((_LEAVING, _REPLACED)) for path in folder.iterdir()):
        raise BadInput(
            f"{folder}: a run is replacing its files, or was killed while it did; the same run "
            "again (with -o there and --overwrite) puts it right"
        )


def put_right(final: Path) -> None:
    """End or undo what killed runs left of an output folder, and remove their partial results.

    Folders of a run that goes on stay, and so does what cannot be put right without a loss.

    Raises:
        OSError: a file cannot be moved or removed.
    """
    found: list[Path] = []
    if final.is_dir():
        for path in sorted(final.iterdir()):
            if path.name.startswith((_LEAVING, _REPLACED)):
                _end_swap(path, final)
        found += final.glob(f"{_PARTIAL}*")
    found += final.parent.glob(f"{_PARTIAL}{_label(final)}-*")
    for folder in found:
        with _abandoned(folder) as ours:
            if ours:
                shutil.rmtree(folder)


def _end_swap(aside: Path, final: Path) -> None:
    token = aside.name.rpartition("-")[2]
    made = next(iter(final.glob(f"{_PARTIAL}*-{token}")), None)
    with _abandoned(made or aside) as ours:
        if not ours:
            return
        if aside.name.startswith(_LEAVING):
            _move(aside, final)
        elif made is not None:
            _move(made, final)
        shutil.rmtree(aside)


def _move(source: Path, goal: Path) -> None:
    """Move files, models last.

    Raises:
        FileExistsError: one is there already, by another hand; nothing was moved.
    """
    paths = sorted(source.iterdir(), key=lambda path: path.suffix == ".onnx")
    for path in paths:
        if (goal / path.name).exists():
            raise FileExistsError(
                f"a run was killed while it replaced '{path.name}', which is in {source} and "
                "beside it again; move one of them away"
            )
    for path in paths:
        path.rename(goal / path.name)


@contextmanager
def _abandoned(folder: Path) -> Generator[bool, None, None]:
    """Hold the lock of a folder, if no run does."""
    try:
        lock = _locked(folder)
    except OSError:
        lock = None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder until the descriptor is closed; nothing where the system has no such locks.

    Raises:
        OSError: another process holds it, or has removed it.
    """
    if sys.platform == "win32":
        return None
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    except OSError:  # a file system without locks
        os.close(lock)
        return None
    return lock


def _label(final: Path) -> str:
    """A short word for the name of an output folder, which may be as long as names can be."""
    return hashlib.sha256(os.fsencode(final.name)).hexdigest()[:8]
