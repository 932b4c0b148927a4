"""The step that quantizes the activations of a lowered graph, and states what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from rewriter.activations import (
    Calibration,
    calibration,
    divergence,
    is_decoder,
    judge_again,
    quantize_activations,
    runs_without_pads,
)
from rewriter.activations.afford import SHARE, afforded
from rewriter.activations.prompts import AUTO
from rewriter.generate.text import NAME
from rewriter.outcome import GraphOutcome
from rewriter.output import Staging
from rewriter.proof import Calibrated
from rewriter.quantization import quantized_weights
from rewriter.settings import LEVELS, Settings
from rewriter.source import Source
from rewriter.stages import Stages

_RUNS = 2
"""Prompts that a device is compared on."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A graph whose activations were quantized, before it is written.

    Attributes:
        floats: the file it was made of.
        given: what it was calibrated on.
    """

    floats: Path
    given: Calibration


def quantize_graph(
    model: ir.Model, graph: GraphOutcome, settings: Settings, source: Source, folder: Path
) -> Quantized:
    """Quantize a graph in place, and tell of it.

    Args:
        model: lowered.
        graph: gets what became of it.
        settings: what was asked.
        source: whose tokenizer reads prompts.
        folder: a temporary one, which must outlive the model: its weights lie there.

    Raises:
        BadInput: the calibration data does not fit, or the graph cannot be quantized.
        RuntimeFault: ONNX Runtime fails.
    """
    home = folder / f"floats-{graph.phase}"
    home.mkdir()
    floats, _ = Staging(home, home).write(model, graph.file)
    tokenizer = source.companions().files.get(NAME)
    asked = calibration(settings.calibrate, floats, tokenizer, settings.seed)
    given, left_out = afforded(asked, floats, settings.budget * 60 * SHARE)
    graph.activations = quantize_activations(
        model, floats, settings.target, settings.activations, given, mask_value=settings.mask_value
    )
    judge_again(model, settings.target, graph.report)
    graph.quantized = quantized_weights(model)
    graph.notes += graph.activations.notes + [left_out] * bool(left_out)
    if settings.calibrate == AUTO:
        graph.notes.append(
            f"activations were calibrated on {asked.source}: ranges of real text may be wider; "
            "give --calibrate a .txt of prompts"
        )
    return Quantized(floats, given)


def evaluate_graph(
    made: Quantized, written: Path, graph: GraphOutcome, settings: Settings, stages: Stages
) -> Calibrated:
    """How far a written graph is from its float form, and what a device is to be fed.

    Raises:
        RuntimeFault: ONNX Runtime fails.
    """
    assert graph.activations is not None
    if made.given.prompts and is_decoder(ir.load(written)):
        with stages("evaluate", "comparing distributions with those of the float graph"):
            graph.activations.divergence = divergence(made.floats, written, made.given)
    device = settings.place and LEVELS.index(settings.parity) == len(LEVELS) - 1
    feeds = runs_without_pads(written, made.given, _RUNS) if device else []
    return Calibrated(made.floats, tuple(feeds))
