"""How far a quantized graph is from its float form: distributions of the next token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rewriter.activations.feeding import Calibration, Runs
from rewriter.activations.model import Divergence

Floats = npt.NDArray[np.float64]


def divergence(floats: Path, quantized: Path, given: Calibration) -> Divergence:
    """Mean KL of the quantized graph's distributions from the float one's, on the same prompts.

    Both run on ONNX Runtime's CPU without optimizations, each with its own caches.

    Args:
        floats: a decoder.
        quantized: the same with quantized activations.
        given: prompts.

    Raises:
        RuntimeFault: ONNX Runtime fails.
    """
    with Runs(floats, given) as one, Runs(quantized, given) as other:
        pairs = zip(one.outputs(["logits"]), other.outputs(["logits"]), strict=True)
        each = [(_rows(a["logits"]), _rows(b["logits"])) for a, b in pairs]
    apart = np.concatenate([kl(a, b) for a, b in each])
    same = np.concatenate([a.argmax(-1) == b.argmax(-1) for a, b in each])
    return Divergence(float(apart.mean()), float(apart.max()), float(same.mean()), apart.size)


def kl(one: Floats, other: Floats) -> Floats:
    """KL(p || q) of each row, in nats, of the distributions that two arrays of logits mean."""
    p, q = _log_softmax(one), _log_softmax(other)
    found: Floats = (np.exp(p) * (p - q)).sum(-1)
    return found


def _rows(logits: npt.NDArray[np.float32]) -> Floats:
    return logits.reshape(-1, logits.shape[-1]).astype(np.float64)


def _log_softmax(logits: Floats) -> Floats:
    moved = logits - logits.max(-1, keepdims=True)
    found: Floats = moved - np.log(np.exp(moved).sum(-1, keepdims=True))
    return found
