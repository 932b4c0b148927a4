"""The options that name no subcommand, in the groups that ``--help`` shows them in."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewriter.cli import options, values
from rewriter.quantize.spec import GRAINS, METHODS


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
    options.rows(group)
    options.json(parser)


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
    options.runtime(group)
    options.budget(group)
