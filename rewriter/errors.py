"""The errors a person can meet, each with its exit code (design: first that applies)."""

from __future__ import annotations


class RewriteError(Exception):
    """Anything this tool refuses or fails at; the message is one sentence with a next step."""

    exit_code = 1


class BadInput(RewriteError):
    """A file, option, dim or target that cannot be used."""

    exit_code = 2


class OutOfResources(RewriteError):
    """Memory or disk ran out."""

    exit_code = 6


def of_memory(error: BaseException) -> bool:
    """Whether memory ran out, whatever words were found for it on the way up."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, MemoryError):
            return True
        one = one.__cause__ or one.__context__
    return False


class RuntimeFault(RewriteError):
    """A foreign runtime failed, crashed or ran out of time in its child process.

    Attributes:
        kind: ``"missing"`` (not installed), ``"error"``, ``"crash"``, ``"timeout"``
            or ``"memory"``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
