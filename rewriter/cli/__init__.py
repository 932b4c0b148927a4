"""The ``rewrite`` command. Only the parser is imported here: help has to come at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from rewriter.cli.arguments import COMMANDS, parse
from rewriter.errors import BadInput, RewriteError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code.

    Exit codes, first that applies: 1 internal error, 2 bad usage or input, 6 memory or disk,
    3 nodes are stuck or unknown, 4 parity failed, 5 table and runtime disagree, 0 good.
    """
    options = parse(sys.argv[1:] if arguments is None else list(arguments))
    command = import_module(COMMANDS[options.command].module)
    try:
        return int(command.run(options))
    except RewriteError as error:
        print(f"rewrite: {error}", file=sys.stderr)  # ruff: ignore[print] - the one place that prints
        return error.exit_code
    except MemoryError:
        print("rewrite: out of memory", file=sys.stderr)  # ruff: ignore[print]
        return 6
    except KeyboardInterrupt:
        print("rewrite: interrupted; nothing was written", file=sys.stderr)  # ruff: ignore[print]
        return 130
    except BrokenPipeError:
        return 0
    except Exception as error:
        if options.debug:
            raise
        kind = type(error).__name__
        print(  # ruff: ignore[print]
            f"rewrite: internal error: {kind}: {error} (--debug shows where)", file=sys.stderr
        )
        return BadInput.exit_code - 1
