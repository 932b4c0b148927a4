"""A model with quantized weights as a source of its own, so that all phases share the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from rewriter.output import Staging
from rewriter.quantize.spec import WeightError, WeightQuantization
from rewriter.quantize.weights import Importance, quantize_weights
from rewriter.source import Source

FILE = "quantized.onnx"


def quantized_source(
    source: Source,
    spec: WeightQuantization,
    folder: Path,
    positions: int | None = None,
    measure: Callable[[ir.Model, Path], Importance] | None = None,
) -> tuple[Source, list[WeightError]]:
    """Quantize what a source gives, once, into a file that takes its place.

    What is made of it later is compared with that file: the error of the quantization is stated
    beside, and no part of the comparison.

    Args:
        source: of floats.
        spec: how.
        folder: where the file lies; it must outlive the new source.
        positions: to serve, ``None`` for all.
        measure: finds how much each channel counts, given the model and where it may write.

    Raises:
        RuntimeFault: onnxruntime is not installed, or fails.
        OutOfResources: the disk is full.
    """
    importance = measure(source.read(positions), folder) if measure is not None else None
    model = source.read(positions)
    errors = quantize_weights(model, spec, folder, importance)
    path, _ = Staging(folder, folder).write(model, FILE)
    return replace(source, file=path, read=lambda _: ir.load(path), built=False), errors
