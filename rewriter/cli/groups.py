"""The options of each subcommand, in the groups that ``--help`` shows them in."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli import values
from rewriter.probe import PROBED
from rewriter.quantize.spec import GRAINS, METHODS


def matrix(parser: argparse.ArgumentParser) -> None:
    """Options of ``rewrite matrix``."""
    parser.add_argument("--ep", action="append", default=[], metavar="EP", help="only this EP")
    parser.add_argument("--op", default="", help="only this op, with or without its domain")
    shape = parser.add_mutually_exclusive_group()
    json(shape)
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
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with the EP's runtime",
    )
    json(parser)
    budget(parser)


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
    parser.add_argument("--op", default="", help="only this op, with or without its domain")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--runtime", type=Path, metavar="PYTHON", help="interpreter of an environment with it"
    )
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
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="rows of your own, which win over the table",
    )
    parser.add_argument(
        "--time-limit",
        type=values.size,
        default=60,
        metavar="SECONDS",
        help="most time of one step of a case (default: 60)",
    )
    json(parser)
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
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="PYTHON",
        help="interpreter of an environment with the EP's runtime",
    )
    json(parser)


def target(parser: argparse.ArgumentParser) -> None:
    """What to rewrite for, and into which sizes."""
    group = parser.add_argument_group("target")
    group.add_argument(
        "--ep",
        required=True,
        metavar="EP[@VERSION]",
        help="qnn, openvino, openvino-ep, ort-cpu, ort-cuda, onnx-standard[@OPSET], portable (what "
        "frontends may emit), or one that an installed package adds",
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
        "--seq",
        type=values.size,
        default=0,
        metavar="S",
        help="tokens the prefill graph reads at a time",
    )
    group.add_argument(
        "--max-seq-len", type=values.size, default=0, metavar="N", help="rows of the fixed cache"
    )
    group.add_argument(
        "--weights",
        choices=("exact", "int4", "int8", "fp16"),
        default="exact",
        help="form of a checkpoint's weights; all but exact lose something, which is reported",
    )
    group.add_argument(
        "--mask-value",
        type=values.mask_value,
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
        "--device",
        choices=("NPU", "GPU", "CPU"),
        help="what it runs on: adds what others saw compile there to what was measured here "
        "(qnn: NPU; openvino: any)",
    )
    group.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="rows of your own, in the table's format",
    )
    json(parser)


def quantization(parser: argparse.ArgumentParser) -> None:
    """What becomes integers."""
    group = parser.add_argument_group("quantization")
    group.add_argument(
        "--activations",
        choices=("a16", "a8"),
        help="quantize activations to 16 bits, or to 8 where that does little harm",
    )
    group.add_argument(
        "--calibrate",
        metavar="DATA|auto",
        help="what their ranges are measured on: .txt with a prompt on each line, .npz with "
        "input_ids or all inputs, or auto for random ids (default: auto)",
    )
    group.add_argument(
        "--quantize", choices=("int4", "int8"), help="quantize float weights, with the error stated"
    )
    group.add_argument(
        "--method",
        choices=METHODS,
        help="round to nearest, or search scale and zero point of each block (default: rtn)",
    )
    group.add_argument(
        "--max-error",
        type=values.share,
        metavar="E",
        help="largest relative error of a layer: beyond it 8 bits instead of 4, or none",
    )
    group.add_argument(
        "--grain",
        choices=GRAINS,
        help="what shares a scale: a block of 32, or a whole column (default: block)",
    )
    group.add_argument(
        "--quantize-embeddings", action="store_true", help="tables of token embeddings too"
    )


def output(parser: argparse.ArgumentParser) -> None:
    """What to write, and where."""
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
        type=values.parts,
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
    group.add_argument(
        "--report", type=Path, metavar="FILE", help="write the report: FILE.json or FILE.html"
    )
    group.add_argument(
        "--allow-stuck",
        action="store_true",
        help="keep what could be done where nodes stay illegal",
    )


def proof(parser: argparse.ArgumentParser) -> None:
    """What to compare, and on which runtime."""
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
    budget(group)


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
