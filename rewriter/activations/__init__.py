"""Quantized activations: calibrated, and only in forms that the target's rows call legal."""

from rewriter.activations.evaluation import divergence
from rewriter.activations.feeding import Calibration, runs_without_pads
from rewriter.activations.judge import judge_again
from rewriter.activations.model import Divergence, KeptWeight, QuantizedActivations, Range
from rewriter.activations.prompts import AUTO, calibration, is_decoder
from rewriter.activations.step import quantize_activations

__all__ = [
    "AUTO",
    "Calibration",
    "Divergence",
    "KeptWeight",
    "QuantizedActivations",
    "Range",
    "calibration",
    "divergence",
    "is_decoder",
    "judge_again",
    "quantize_activations",
    "runs_without_pads",
]
