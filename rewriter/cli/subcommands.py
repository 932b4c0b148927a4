"""The options of ``rewrite matrix``, ``audit``, ``probe`` and ``run``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli import options, values
from rewriter.probe import PROBED


def matrix(parser: argparse.ArgumentParser) -> None:
    """Options of ``rewrite matrix``."""
    parser.add_argument("--ep", action="append", default=[], metavar="EP", help="only this EP")
    options.op(parser)
    shape = parser.add_mutually_exclusive_group()
    options.json(shape)
    shape.add_argument("--markdown", action="store_true", help="as the page capabilities/README.md")
    shape.add_argument(
        "--html", action="store_true", help="as a page whose cells lead to reasons and evidence"
    )


def audit(parser: argparse.ArgumentParser) -> None:
    """Options of ``rewrite audit``."""
    parser.add_argument("original", type=Path, help="the model that is right, ONNX or a checkpoint")
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="result",
        help="the ONNX file that should be the same function; several with --cost, none with --ep",
    )
    parser.add_argument(
        "--dump",
        type=Path,
        metavar="DIR",
        help="write the smallest part that differs, as models with their inputs",
    )
    parser.add_argument(
        "--ep",
        choices=("qnn", "openvino", "ort-cpu"),
        help="where does this EP's runtime depart from ONNX Runtime's CPU on the one model given",
    )
    parser.add_argument(
        "--cost",
        action="store_true",
        help="rank the models by what they cost: nodes, bytes, and what the runtime of --ep says",
    )
    options.runtime(parser)
    options.json(parser)
    options.budget(parser)


def probe(parser: argparse.ArgumentParser) -> None:
    """Options of ``rewrite probe``."""
    parser.add_argument("--ep", choices=PROBED, required=True, help="whose runtime is measured")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick",
        action="store_true",
        help="only the cases that decide rows of the newest version (the default)",
    )
    size.add_argument("--full", action="store_true", help="every case")
    options.op(parser)
    where = parser.add_mutually_exclusive_group()
    options.runtime(where)
    where.add_argument(
        "--environments",
        type=Path,
        metavar="DIR",
        help="probe every version that pip offers, each in an environment in DIR that is made "
        "where it is not there",
    )
    where.add_argument(
        "--result",
        type=Path,
        metavar="FILE.json",
        help="run nothing: take what --json printed, here or elsewhere",
    )
    options.rows(parser)
    parser.add_argument(
        "--time-limit",
        type=values.size,
        default=60,
        metavar="SECONDS",
        help="most time of one step of a case (default: 60)",
    )
    options.json(parser)
    parser.add_argument(
        "--write",
        action="store_true",
        help="add what was confirmed to the table's evidence, and to the rows that rest on it",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="with --write: where records of this command cover a row, drop the others",
    )


def run(parser: argparse.ArgumentParser) -> None:
    """Options of ``rewrite run``."""
    parser.add_argument("folder", type=Path, help="what 'rewrite MODEL -o FOLDER' has written")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--prompt", metavar="TEXT", help="text, read by the folder's tokenizer")
    given.add_argument(
        "--ids", type=values.ids, metavar="1,2,3", help="token ids; ids are printed too"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=values.size,
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
    options.runtime(parser)
    options.json(parser)
