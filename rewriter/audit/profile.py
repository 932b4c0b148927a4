"""How far apart two models are over their depth: some inner values, from the inputs to the end."""

from __future__ import annotations

import re
from pathlib import Path

from rewriter.audit.find import inner_tolerance
from rewriter.audit.values import Common, Pair, common_values
from rewriter.parity.compare import BadReference, compare_runs
from rewriter.parity.outputs import OutputParity, specified_pairs
from rewriter.parity.trial import Side, Trial

_MOST = 40
"""Values that are compared; a plot shows no more."""

_LAYER = re.compile(r"(?<![A-Za-z\d])(\d+)(?![A-Za-z\d])")


def layer_of(name: str) -> int | None:
    """The layer that a value belongs to, by its name, such as ``present.7.key``."""
    found = _LAYER.search(name)
    return None if found is None else int(found[1])


def profile(
    original: Side, result: Side, given: Trial, folder: Path, time_limit: float
) -> tuple[OutputParity, ...]:
    """Compare values that both models compute under one name, at equal distances.

    Args:
        original: the one that is right.
        result: the one in question.
        given: what to feed.
        folder: an empty temporary one.
        time_limit: seconds for each run.

    Raises:
        RuntimeFault: ONNX Runtime fails on one.
    """
    pair = Pair(original, result, given, folder, time_limit)
    values = common_values(pair.original.model, pair.result.model)
    floats = [v for v in values if _floating(v)]
    every = max(len(floats) / _MOST, 1.0)
    chosen = [floats[int(at * every)] for at in range(min(len(floats), _MOST))]
    expected, actual = pair.run([value.name for value in chosen])
    found = []
    for value in chosen:
        try:
            error = compare_runs(specified_pairs(value.name, expected, actual, given))
        except BadReference:
            continue
        tolerance = inner_tolerance(value)
        found.append(OutputParity(value.name, error, tolerance, error.max_std <= tolerance))
    return tuple(found)


def _floating(value: Common) -> bool:
    """Whether it is a float, by what either model knows of its type."""
    dtype = value.original.dtype or value.result.dtype
    return dtype is not None and dtype.is_floating_point()
