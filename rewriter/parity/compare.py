"""Comparing arrays, with the reference on trial too: NaN, or one number everywhere, prove nothing.

A kernel that gives zeros whatever it is fed would agree with a rewrite that does so too. An output
may be one number in one run, but not the same in all runs, unless it has no input at all or one
element only, which cannot but be one number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class BadReference(ValueError):
    """The reference is not fit to be compared with; the message says why."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far an array is from its reference.

    Attributes:
        max_abs: largest difference.
        max_rel: that over the largest reference value.
        max_std: that over the standard deviation of the reference.
        rms_std: root mean square of the difference, over the same.
    """

    max_abs: float
    max_rel: float
    max_std: float
    rms_std: float

    @classmethod
    def worst(cls, errors: list[Error]) -> Error:
        """The largest of each figure."""
        return cls(
            max(e.max_abs for e in errors),
            max(e.max_rel for e in errors),
            max(e.max_std for e in errors),
            max(e.rms_std for e in errors),
        )


def compare(reference: Array, other: Array) -> Error:
    """How far ``other`` is from ``reference`` in one run; see :func:`compare_runs`."""
    return compare_runs([(reference, other)])


def compare_runs(
    pairs: Sequence[tuple[Array, Array]], fixed: Callable[[], bool] = lambda: False
) -> Error:
    """The largest error of an output over its runs.

    Args:
        pairs: reference and result of each run.
        fixed: whether the output is made of constants alone, so that it may be one number.

    Raises:
        BadReference: shapes differ, the reference is not finite, or it is one number everywhere
            and in every run (of floats that more than one element has).
    """
    for reference, other in pairs:
        if reference.shape != other.shape:
            raise BadReference(f"shapes differ: {reference.shape} and {other.shape}")
    if any(reference.dtype.kind in "iub" for reference, _ in pairs):
        return Error.worst([_apart(*pair) for pair in pairs])
    wide = [reference.astype(np.float64) for reference, _ in pairs]
    every = np.concatenate([np.ravel(array) for array in wide])
    if not np.isfinite(every).all():
        raise BadReference("the reference is not finite")
    many = any(array.size > 1 for array in wide)
    if many and (every == every[0]).all() and not fixed():
        what = "all zeros" if every[0] == 0 else f"{every[0]:g} everywhere"
        raise BadReference(f"the reference is {what}, whatever it is fed, and shows nothing")
    return Error.worst(
        [_error(one, other, every) for one, (_, other) in zip(wide, pairs, strict=True)]
    )


def _apart(reference: Array, other: Array) -> Error:
    """The error of integers and bools, in their own unit."""
    gaps = np.abs(reference.astype(np.float64) - other.astype(np.float64))
    apart = float(gaps.max(initial=0.0))
    return Error(apart, apart, apart, apart)


def _error(wide: npt.NDArray[np.float64], other: Array, every: npt.NDArray[np.float64]) -> Error:
    """The error of one run; in the unit of all runs where this one's reference is zero."""
    if wide.size == 0:
        return Error(0.0, 0.0, 0.0, 0.0)
    gaps = np.abs(wide - other.astype(np.float64))
    gaps = np.where(np.isnan(gaps), np.inf, gaps)
    unit = wide if wide.any() else every
    largest = float(np.abs(unit).max()) or 1.0
    spread = float(unit.std()) or largest
    top = float(gaps.max())
    rms = float(np.sqrt((gaps**2).mean()))
    return Error(top, top / largest, top / spread, rms / spread)
