"""What options ask to be quantized."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capabilities import Target
from rewriter.activations.integers import in_integers
from rewriter.activations.prompts import AUTO
from rewriter.errors import BadInput
from rewriter.quantize.spec import WeightQuantization

_BOUNDARY: Mapping[str, Mapping[str, str]] = {"qnn": {"offload_graph_io_quantization": "0"}}
"""Options of an EP that give it the Q and DQ at the boundary of a graph as well."""


def quantization_of(options: argparse.Namespace) -> dict[str, Any]:
    """What :class:`~rewriter.settings.Settings` needs to know of quantization.

    Raises:
        BadInput: options that say how, and none that says that.
    """
    if options.calibrate and not options.activations:
        raise BadInput("--calibrate is for --activations; say a16 or a8")
    how = ("method", "max_error", "grain", "quantize_embeddings")
    given = [name for name in how if getattr(options, name)]
    if given and not options.quantize:
        raise BadInput(f"--{given[0].replace('_', '-')} is for --quantize; say int4 or int8")
    return {
        "activations": int(options.activations[1:]) if options.activations else 0,
        "calibrate": options.calibrate or AUTO,
        "quantize": _weights(options) if options.quantize else None,
    }


def _weights(options: argparse.Namespace) -> WeightQuantization:
    try:
        return WeightQuantization(
            bits=int(options.quantize.removeprefix("int")),
            method=options.method or "rtn",
            max_error=options.max_error,
            grain=options.grain or "block",
            embeddings=options.quantize_embeddings,
        )
    except ValueError as why:
        raise BadInput(f"--quantize: {why}") from None


def quantized_target(options: argparse.Namespace, target: Target) -> Target:
    """The target as a graph with quantized activations is used with it."""
    if not options.activations:
        return target
    target = replace(target, options={**_BOUNDARY.get(target.ep, {}), **target.options})
    return in_integers(target) if options.activations == "a16" else target
