"""What is asked of the file in float16: exact arithmetic, and nothing lost but in its own type.

The reference is the original in float32 on ONNX Runtime: its numbers are float16's, and nothing
is rounded between its nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from frontends import read
from rewriter.parity.trial import trial
from rewriter.parity.widen import widened
from rewriter.runtime import child
from tests import ort

Array = npt.NDArray[Any]
NEAR = 1e-5
"""Of the reference's standard deviation: the bound of float32 files, before anything is stored."""


def stores(exact: Array, found: Array) -> bool:
    """Whether every element is what its type makes of a number within :data:`NEAR` of the exact.

    Rounding keeps the order of numbers, so that the two ends of what is near, rounded as they are
    stored, enclose all that may be stored.
    """
    exact = exact.astype(np.float64)
    room = NEAR * exact.std()
    low, high = (exact - room).astype(found.dtype), (exact + room).astype(found.dtype)
    return bool(np.isfinite(exact).all() and (low <= found).all() and (found <= high).all())


def openvino_stores_exact(source: Path, result: Path, python: Path | None = None) -> bool:
    """Whether OpenVINO gives what exact arithmetic does on the original, stored as its outputs are.

    OpenVINO's CPU plugin computes float16 in float32 (every node of what it executes says so) and
    rounds the outputs alone. Half a step of float16 is up to 1.3e-3 of the standard deviation
    here: a bound for the distance from exact arithmetic would see nothing that is smaller. The
    scale of an attention it does round to float16; that of the file, 1/4, is such a number.

    Args:
        source: the file as the exporter wrote it.
        result: what became of it.
        python: the interpreter whose OpenVINO runs; ours when None.
    """
    original = read(source)
    feeds = trial(original, seed=0, count=3).feeds
    job = child.Job(result, ep="openvino", feeds=feeds)
    wide, good = widened(original), []
    for feed, found in zip(feeds, child.run(job, python=python).outputs, strict=True):
        exact = ort.run(wide, feed)
        assert {array.dtype for array in found.values()} == {np.dtype(np.float16)}
        good += [stores(exact[name], array) for name, array in found.items()]
    return bool(good) and all(good)


def no_farther_than_the_original(
    original: ir.Model, result: ir.Model, feeds: ort.Arrays, golden: Array
) -> None:
    """Hold a result in float16 against a golden that was computed in float16 too.

    Such a golden has an error of its own (2.2e-3 of the standard deviation from the reference, in
    the largest; the original is 1.6e-3 from the reference, and 3.1e-3 from the golden), and no
    bound of ours can be tighter. So the original's errors are counted: from the reference the
    result in float32 is within :data:`NEAR`, and from the golden it is no farther than the
    original, each in its own type, at most and on average.

    Args:
        original: as the exporter wrote it.
        result: lowered.
        feeds: inputs of the golden.
        golden: the first output.
    """
    name = str(original.graph.outputs[0].name)
    exact = ort.run(widened(original), feeds)[name]
    unit = NEAR * exact.std()
    assert np.abs(ort.run(widened(result), feeds)[name] - exact).max() < unit
    before, after = (
        np.abs(ort.run(model, feeds)[name].astype(np.float64) - golden)
        for model in (original, result)
    )
    assert 0 < before.max() < np.inf
    assert after.max() <= before.max() + unit
    assert np.sqrt((after**2).mean()) <= np.sqrt((before**2).mean()) + unit
