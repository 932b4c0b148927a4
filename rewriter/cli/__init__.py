"""The ``rewrite`` command. Only the parser is imported here: help has to come at once."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from tempfile import gettempdir

from rewriter.cli.arguments import COMMANDS, parse
from rewriter.errors import BadInput, OutOfResources, RewriteError, RuntimeFault, of_memory
from rewriter.report.clean import printable

__all__ = ["main"]

_INTERNAL, _INTERRUPTED = 1, 130
_NO_MEMORY = "out of memory; nothing was written"
_NO_THREAD = "can't start new thread"
"""What Python says where there is no memory for one."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code.

    Exit codes, first that applies: 1 internal error, 2 bad usage or input, 6 memory or disk,
    3 nodes are stuck or unknown, 4 parity failed, 5 table and runtime disagree, 0 good.
    """
    if arguments is None:
        from rewriter.cli.signals import tidy_on_signals

        tidy_on_signals()
    options = parse(sys.argv[1:] if arguments is None else list(arguments))
    try:
        command = import_module(COMMANDS[options.command].module)
        return int(command.run(options))
    except KeyboardInterrupt:
        _say("interrupted; nothing half-done is left behind")
        return _INTERRUPTED
    except Exception as error:
        if options.debug:
            raise
        lines, code = _explained(error)
        _say(*lines)
        return code


def _explained(error: Exception) -> tuple[list[str], int]:
    """What to say of an error, and the exit code."""
    from capabilities import BadPlugin

    if of_memory(error) and not isinstance(error, OutOfResources):
        return [_NO_MEMORY], OutOfResources.exit_code
    if isinstance(error, RuntimeFault):
        return [str(error)], _OF_FAULT.get(error.kind, _INTERNAL)
    if isinstance(error, RewriteError):
        lines = error.lines() if hasattr(error, "lines") else [str(error)]
        return lines, error.exit_code
    if isinstance(error, BadPlugin):
        return [str(error)], BadInput.exit_code
    if _NO_THREAD in str(error):
        return [_NO_MEMORY], OutOfResources.exit_code
    if isinstance(error, OSError):
        return _explained_os(error)
    kind = type(error).__name__
    return [f"internal error: {kind}: {error} (--debug shows where)"], _INTERNAL


def _explained_os(error: OSError) -> tuple[list[str], int]:
    """Files of ours have their own words already; this is the temporary folder, or a pipe."""
    if error.errno in _FULL:
        where = error.filename or f"the temporary folder, {gettempdir()}, or where output goes"
        words = f"no space is left in {where}; make room and run it again"
        return [words], OutOfResources.exit_code
    where = f"{error.filename}: " if error.filename else ""
    return [f"{where}{error.strerror or error}"], BadInput.exit_code


_OF_FAULT = {"missing": BadInput.exit_code, "memory": OutOfResources.exit_code}
"""Exit codes of faults of a runtime that nothing made part of the report."""


def _say(*lines: str) -> None:
    """Print an error, which is one line unless there is a list to give."""
    try:
        print("rewrite:", "\n".join(map(printable, lines)), file=sys.stderr)  # ruff: ignore[print] - the one place that prints
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
