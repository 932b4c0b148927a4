"""The command line: subcommands and options, with the standard library alone."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from rewriter import __version__
from rewriter.settings import MASK_VALUES


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: the module whose ``run(options)`` does it, and a line about it."""

    module: str
    about: str


COMMANDS = {
    "model": Command("rewriter.cli.model", "rewrite a model for an EP (the default)"),
    "plan": Command("rewriter.cli.plan", "what would happen, and what cannot; changes nothing"),
    "explain": Command("rewriter.cli.explain", "why an op or a node is where it is"),
    "run": Command("rewriter.cli.run", "generate tokens through a folder that was written"),
    "matrix": Command("rewriter.cli.matrix", "op and form against EP and version"),
}

_EPILOG = """\
examples:
  rewrite llama.onnx --ep qnn --dim batch=1 --dim seq=1 --dim past=128 -o llama-qnn/
  rewrite llama.onnx --ep onnx-standard -o llama-std/
  rewrite gemma.gguf --ep qnn --max-seq-len 512 -o gemma-qnn/
  rewrite plan llama.onnx --ep qnn@2.4.0 --dim batch=1 --dim seq=1 --dim past=128
  rewrite explain RotaryEmbedding --ep qnn@2.6.0
  rewrite matrix --ep qnn --op MatMulNBits
  rewrite run gemma-qnn/ --ep qnn --prompt "Once upon a time"

exit codes (first that applies): 1 internal error, 2 bad usage or input, 6 memory or disk,
  3 nodes are stuck or unknown, 4 parity failed, 5 table and runtime disagree, 0 good
"""


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
        epilog=_EPILOG if command == "model" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rewrite {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an internal error is")
    if command == "matrix":
        _matrix(parser)
        return parser
    if command == "run":
        _run(parser)
        return parser
    if command == "explain":
        parser.add_argument("what", help="OP, domain::OP, or MODEL:NODE")
    else:
        parser.add_argument("model", type=Path, help="model file, or a folder that holds one")
    _target(parser)
    if command == "model":
        _output(parser)
        _proof(parser)
    return parser


def _matrix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ep", action="append", default=[], metavar="EP", help="only this EP")
    parser.add_argument("--op", default="", help="only this op, by its type")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="as JSON")
    shape.add_argument("--markdown", action="store_true", help="as the page capabilities/README.md")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="what 'rewrite MODEL -o FOLDER' has written")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--prompt", metavar="TEXT", help="text, read by the folder's tokenizer")
    given.add_argument("--ids", type=_ids, metavar="1,2,3", help="token ids; ids are printed too")
    parser.add_argument(
        "--max-new-tokens",
        type=_size,
        default=0,
        metavar="N",
        help="most tokens to generate (default: 32, or what fits into the cache)",
    )
    parser.add_argument(
        "--ep",
        choices=("ort-cpu", "qnn", "openvino"),
        default="ort-cpu",
        help="where the graphs run (default: ort-cpu, which runs those of every EP)",
    )
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with the EP's runtime",
    )


def _target(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("target")
    group.add_argument(
        "--ep",
        required=True,
        metavar="EP[@VERSION]",
        help="qnn, openvino, openvino-ep, ort-cpu, or onnx-standard[@OPSET]",
    )
    group.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="fix a dim: the model's own name, or batch, seq, past, total, max",
    )
    group.add_argument(
        "--static",
        choices=("prefill", "decode", "both"),
        default="",
        help="graphs of a decoder with a cache of fixed size: to read prompts, to decode",
    )
    group.add_argument(
        "--seq", type=_size, default=0, metavar="S", help="tokens the prefill graph reads at a time"
    )
    group.add_argument(
        "--max-seq-len", type=_size, default=0, metavar="N", help="rows of the fixed cache"
    )
    group.add_argument(
        "--weights",
        choices=("exact", "int4", "int8", "fp16"),
        default="exact",
        help="form of a checkpoint's weights; all but exact lose something, which is reported",
    )
    group.add_argument(
        "--mask-value",
        type=_mask_value,
        metavar="V",
        help="what hides a key, such as -1e4, -255 or -50, in the place of the lowest float or "
        "-inf that constants of the model hold (float masks that are inputs stay as they are)",
    )
    group.add_argument(
        "--disable", action="append", default=[], metavar="RULE", help="do not use a rule"
    )
    group.add_argument(
        "--legal",
        action="append",
        default=[],
        metavar="OP[FORM]",
        help="you know that the EP runs this; wins over the table",
    )
    group.add_argument(
        "--illegal",
        action="append",
        default=[],
        metavar="OP[FORM]",
        help="you know that it does not",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="provider option of the session, such as soc_model=69 or op_affinity=FILE",
    )
    group.add_argument(
        "--soc",
        metavar="ID",
        help="the device's SoC, by number or chip, such as 60 or SC8380XP (qnn)",
    )
    group.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="rows of your own, in the table's format",
    )


def _output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="folder to write (default: <model's name>-<ep> here)",
    )
    group.add_argument(
        "--split",
        type=_parts,
        default=0,
        metavar="N|auto",
        help="cut each graph between layers: embedding, N parts of layers, head; auto keeps each "
        "part below 1 GiB of weights",
    )
    group.add_argument(
        "--compile",
        action="store_true",
        help="also write what the NPU loads (EPContext), compiled offline and compared (qnn)",
    )
    group.add_argument("--overwrite", action="store_true", help="replace what DIR holds")
    group.add_argument("--report", type=Path, metavar="FILE.json", help="write the report as JSON")
    group.add_argument(
        "--allow-stuck",
        action="store_true",
        help="keep what could be done where nodes stay illegal",
    )


def _proof(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("proof")
    group.add_argument(
        "--parity",
        choices=("none", "sites", "model", "device"),
        default="model",
        help="what is compared with the original (default: model)",
    )
    group.add_argument("--no-place", action="store_true", help="do not ask the real runtime")
    group.add_argument(
        "--runtime",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with the target's runtime",
    )
    group.add_argument(
        "--budget",
        type=_minutes,
        default=10.0,
        metavar="MINUTES",
        help="most time on a runtime; what takes longer is cut to a slice (default: 10)",
    )
    group.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="of the random inputs (default: 0)"
    )


def _minutes(text: str) -> float:
    """A time that something can be done in."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not (math.isfinite(minutes) and minutes > 0):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time above 0; to run nothing, give --parity none --no-place"
        )
    return minutes


def _ids(text: str) -> list[int]:
    """Token ids, at least one."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) < 1 << 31 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of token ids such as 1,2,3")
    return [int(word) for word in words]


def _size(text: str) -> int:
    """A length, which is at least 1."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1")
    return int(text)


def _parts(text: str) -> int | Literal["auto"]:
    """How many parts of layers."""
    return "auto" if text == "auto" else _size(text)


def _mask_value(text: str) -> float:
    """A number that hides a key, and stays finite beside a score in fp16."""
    low, high = MASK_VALUES
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from {low:g} to {high:g}")
    return value


def _signed(arguments: list[str]) -> list[str]:
    """The same with ``--mask-value=-1e4`` for its two words, where argparse sees two options."""
    words: list[str] = []
    for word in arguments:
        if words and words[-1] == "--mask-value" and word[:1] == "-" and word[1:2] != "-":
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _seed(text: str) -> int:
    """A seed, which numpy wants to be 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0")
    return int(text)
