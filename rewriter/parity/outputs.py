"""Outputs of two runs, compared one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.extract import leaves
from rewriter.parity.compare import BadReference, Error, compare_runs
from rewriter.parity.domains import Array
from rewriter.parity.feeds import specified
from rewriter.parity.settings import HALF_FACTOR, MODEL_TOLERANCE
from rewriter.parity.trial import Trial
from rewriter.parity.widen import HALVES


@dataclass(frozen=True, slots=True)
class InHalf:
    """The same in the half-precision type that the original computes in.

    Attributes:
        dtype: the type.
        original: how far the original is from what it is in float32; ``None`` if it does not run.
        result: the same of what it became.
        tolerance: of the latter, in the unit of the comparison.
        note: why there is no error.
    """

    dtype: str
    original: Error | None
    result: Error | None
    tolerance: float
    ok: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """What an output of a device was held to, in standard deviations of the reference.

    Attributes:
        largest: of the largest error.
        rms: of the root mean square.
        estimate: what the device's arithmetic costs on this graph, where that was the measure;
            ``None`` where the fixed bound was.
    """

    largest: float
    rms: float
    estimate: Error | None = None


@dataclass(frozen=True, slots=True)
class OutputParity:
    """One output over all scenarios; ``error`` is ``None`` where ``note`` says why."""

    name: str
    error: Error | None
    tolerance: float
    ok: bool
    note: str = ""
    half: InHalf | None = None
    bound: Bound | None = None


def tolerance_of(value: ir.Value, half: ir.DataType | None = None) -> float:
    """Of an output in its type, or in the type that it was computed in; of halves, as float32."""
    dtype = ir.DataType.FLOAT if value.dtype is None or value.dtype in HALVES else value.dtype
    name = (half if half is not None and dtype == ir.DataType.FLOAT else dtype).name.lower()
    return MODEL_TOLERANCE.get(name, 0.0)


def compared(
    model: ir.Model,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
    tolerance: Callable[[ir.Value], float],
) -> tuple[OutputParity, ...]:
    """Every output, but inner values only where they can be compared (a mask of zeros cannot)."""
    outputs = (
        _output(value, tolerance(value), expected, actual, given) for value in model.graph.outputs
    )
    return tuple(o for o in outputs if o.error is not None or o.name not in given.inner)


def specified_pairs(
    name: str,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
) -> list[tuple[Array, Array]]:
    """A value of two models in every run, as far as the ops define it."""
    return [
        (
            specified(name, one[name], given.sizes, scenario),
            specified(name, other[name], given.sizes, scenario),
        )
        for one, other, scenario in zip(expected, actual, given.scenarios, strict=True)
    ]


def _output(
    value: ir.Value,
    tolerance: float,
    expected: Sequence[dict[str, Array]],
    actual: Sequence[dict[str, Array]],
    given: Trial,
) -> OutputParity:
    name = value.name or ""
    pairs = specified_pairs(name, expected, actual, given)
    try:
        error = compare_runs(pairs, lambda: not leaves([value], ()))
    except BadReference as fault:
        return OutputParity(name, None, tolerance, ok=False, note=str(fault))
    return OutputParity(name, error, tolerance, error.max_std <= tolerance)


def in_half(
    dtype: ir.DataType,
    original: Error | None,
    result: Error | None,
    least: float,
    figure: Callable[[Error], float],
    note: str = "",
) -> InHalf:
    """Judge a result in half precision by how far the original itself is from float32.

    Args:
        dtype: the half-precision type.
        original: error of the original; ``None`` if it does not run in this type, and then
            nothing is asked of the result either.
        result: error of the result.
        least: tolerance of the type, which holds whatever the original does.
        figure: the figure of an error that counts.
        note: why there is no error.
    """
    tolerance = least
    if original is not None and figure(original) < float("inf"):
        tolerance = max(least, HALF_FACTOR * figure(original))
    ok = original is None or (result is not None and figure(result) <= tolerance)
    return InHalf(dtype.name.lower(), original, result, tolerance, ok, note)
