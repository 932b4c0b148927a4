"""Comparing two arrays, with the reference on trial too: NaN or all zeros prove nothing."""

from __future__ import annotations

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
    """How far ``other`` is from ``reference``.

    Raises:
        BadReference: the reference has NaN, or is nothing but zeros.
    """
    if reference.shape != other.shape:
        raise BadReference(f"shapes differ: {reference.shape} and {other.shape}")
    if reference.size == 0:
        return Error(0.0, 0.0, 0.0, 0.0)
    if reference.dtype.kind in "iub":
        apart = float(np.abs(reference.astype(np.float64) - other.astype(np.float64)).max())
        return Error(apart, apart, apart, apart)
    wide, narrow = reference.astype(np.float64), other.astype(np.float64)
    if not np.isfinite(wide).all():
        raise BadReference("the reference is not finite")
    if not wide.any():
        raise BadReference("the reference is all zeros")
    gaps = np.abs(wide - narrow)
    gaps = np.where(np.isnan(gaps), np.inf, gaps)
    largest = float(np.abs(wide).max())
    spread = float(wide.std()) or largest
    top = float(gaps.max())
    rms = float(np.sqrt((gaps**2).mean()))
    return Error(top, top / largest, top / spread, rms / spread)
