"""The command line: subcommands and options, with the standard library alone."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from rewriter import __version__
from rewriter.cli import groups, subcommands


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: the module whose ``run(options)`` does it, and a line about it."""

    module: str
    about: str


COMMANDS = {
    "model": Command("rewriter.cli.model", "rewrite a model for an EP (the default)"),
    "plan": Command("rewriter.cli.plan", "what would happen, and what cannot; changes nothing"),
    "explain": Command("rewriter.cli.explain", "why an op or a node is where it is"),
    "audit": Command("rewriter.cli.audit", "are two models one function, and where do they part"),
    "run": Command("rewriter.cli.run", "generate tokens through a folder that was written"),
    "probe": Command("rewriter.cli.probe", "measure an installed runtime against the table"),
    "matrix": Command("rewriter.cli.matrix", "op and form against EP and version"),
}

_OWN = {
    "audit": subcommands.audit,
    "matrix": subcommands.matrix,
    "probe": subcommands.probe,
    "run": subcommands.run,
}
"""Subcommands whose options are their own; the others rewrite a model for a target."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the whole usage would bury it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of a command line; ``command`` says which subcommand it is, ``words`` what was typed.

    Raises:
        SystemExit: 2 on bad usage, 0 after help or version.
    """
    first = arguments[0] if arguments else ""
    if first in COMMANDS and first != "model":
        options = _parser(first).parse_args(arguments[1:])
        options.command = first
    else:
        options = _parser("model").parse_args(_signed(arguments))
        options.command = "model"
    options.words = arguments
    return options


def page(name: str) -> str:
    """The page of a subcommand, in Markdown: what it does, and examples."""
    return (files("rewriter.cli") / "pages" / f"{name}.md").read_text(encoding="utf-8")


def _plain(markdown: str) -> str:
    """A page as a terminal shows it: examples indented, no marks."""
    lines, example = list[str](), False
    for line in markdown.splitlines():
        if line.startswith("```"):
            example = not example
        elif example:
            lines.append(f"    {line}")
        else:
            heading = re.match(r"#+ ", line)
            lines.append(f"{line[heading.end() :]}:" if heading else line.replace("`", ""))
    return "\n".join(lines[1:]).strip()


def _parser(command: str) -> argparse.ArgumentParser:
    program = "rewrite" if command == "model" else f"rewrite {command}"
    others = "\n".join(f"  rewrite {n:10} {c.about}" for n, c in COMMANDS.items() if n != "model")
    parser = _Parser(
        prog=program,
        allow_abbrev=False,
        description=(
            f"Rewrite an ONNX model until an execution provider can run every node, and prove "
            f"it.\n\nsubcommands:\n{others}"
            if command == "model"
            else COMMANDS[command].about
        ),
        epilog=_plain(page(command)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rewrite {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an internal error is")
    if own := _OWN.get(command):
        own(parser)
        return parser
    if command == "explain":
        parser.add_argument("what", help="OP, domain::OP, or MODEL:NODE")
    else:
        parser.add_argument("model", type=Path, help="model file, or a folder that holds one")
    groups.target(parser)
    if command == "model":
        groups.quantization(parser)
        groups.output(parser)
        groups.proof(parser)
    return parser


def _signed(arguments: list[str]) -> list[str]:
    """The same with ``--mask-value=-1e4`` for its two words, where argparse sees two options."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--mask-value" and word[:1] == "-" and word[1:2] != "-":
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words
