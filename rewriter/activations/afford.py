"""As much calibration data as a budget pays for, by an estimate, so that results do not vary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from rewriter.activations.feeding import Calibration, decoder_of, fitting
from rewriter.cost import estimate
from rewriter.generate.plan import calls

SHARE = 0.25
"""Of a budget, for each graph: prefill and decode leave half of it to comparing and placing."""

_CALL, _TOKEN = 3.8, 0.12
"""CPU seconds of one call, and of each token it reads, per billion weights: twice to observe
ranges and once to compare (MatMulNBits, 0.12 and 0.026), once with blocks that are dequantized in
every call (3.4 and 0.04); measured on ONNX Runtime 1.32 at 2048 x 4096, one thread."""


def afforded(given: Calibration, file: Path, seconds: float) -> tuple[Calibration, str]:
    """The first of the data, at least one call of it, and what was left out, in words.

    Args:
        given: calibration data.
        file: the float graph that it is for.
        seconds: that observing and comparing may take on ONNX Runtime's CPU.
    """
    weights = estimate(ir.load(file))
    billions = (weights.packed + weights.plain) / 1e3

    def most(width: int) -> int:
        return max(1, int(seconds / max(billions * (_CALL + _TOKEN * width), 1e-9)))

    if not given.prompts:
        widths = [a.shape[1] for feed in given.feeds for a in feed.values() if a.ndim == 2]
        kept = most(max(widths, default=1))
        some = replace(given, feeds=given.feeds[:kept])
        return _told(given, some, kept, len(given.feeds))
    folder, prompts, all_calls, left = decoder_of(file), [], 0, None
    for prompt in given.prompts:
        ids = fitting(folder, prompt)[0]
        made = calls(folder, 0, len(ids))
        all_calls += len(made)
        left = most(made[0].width) if left is None else left
        if left >= len(made):
            prompts.append(prompt)
        elif left:
            prompts.append(ids[: left * made[0].width])
        left = max(0, left - len(made))
    kept = sum(len(calls(folder, 0, len(fitting(folder, one)[0]))) for one in prompts)
    return _told(given, replace(given, prompts=tuple(prompts)), kept, all_calls)


def _told(given: Calibration, some: Calibration, kept: int, count: int) -> tuple[Calibration, str]:
    if kept >= count:
        return given, ""
    part = f"the first {kept} of {count} calls"
    return replace(some, source=f"{given.source}, {part}"), (
        f"activations were calibrated on {part} of {given.source}: a quarter of --budget pays for "
        "no more; raise it to calibrate on all"
    )
