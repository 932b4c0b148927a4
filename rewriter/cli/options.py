"""Options that several subcommands have, each said once."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli import values


def json(parser: argparse._ActionsContainer) -> None:
    """What every subcommand can print instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON object for scripts")


def budget(parser: argparse._ActionsContainer) -> None:
    """Time and seed of what runs on a runtime."""
    parser.add_argument(
        "--budget",
        type=values.minutes,
        default=10.0,
        metavar="MINUTES",
        help="most time on a runtime; what takes longer is cut to a slice (default: 10)",
    )
    parser.add_argument(
        "--seed", type=values.seed, default=0, metavar="N", help="of the random inputs (default: 0)"
    )


def runtime(parser: argparse._ActionsContainer) -> None:
    """Where a runtime is that is not installed here."""
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with the EP's runtime",
    )


def rows(parser: argparse._ActionsContainer) -> None:
    """Rows before those of the table."""
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="rows of your own, in the table's format, which win over it",
    )


def op(parser: argparse.ArgumentParser) -> None:
    """One op alone."""
    parser.add_argument("--op", default="", help="only this op, with or without its domain")
