"""Errors between arrays, and references that prove nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.parity.compare import BadReference, Error, compare


def test_figures() -> None:
    reference = np.array([1.0, -3.0], np.float32)  # largest 3, standard deviation 2
    error = compare(reference, np.array([1.0, -3.5], np.float32))
    assert error == Error(0.5, 0.5 / 3, 0.25, np.sqrt(0.125) / 2)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (np.array([1.0, np.nan]), "not finite"),
        (np.array([np.inf, 1.0]), "not finite"),
        (np.zeros(3), "all zeros"),
    ],
)
def test_bad_references_fail(reference: np.ndarray, reason: str) -> None:
    """D29: a kernel that returned only zeros was 'equal' to a rewrite that did too."""
    with pytest.raises(BadReference, match=reason):
        compare(reference, reference)


def test_a_nan_in_the_result_is_infinitely_far() -> None:
    assert compare(np.array([1.0, 2.0]), np.array([1.0, np.nan])).max_std == np.inf


def test_shapes_have_to_agree() -> None:
    with pytest.raises(BadReference, match="shapes differ"):
        compare(np.ones((2, 1)), np.ones((1, 2)))


def test_integers_and_nothing() -> None:
    assert compare(np.array([1, 2]), np.array([1, 4])).max_abs == 2
    assert compare(np.zeros((0, 4)), np.zeros((0, 4))).max_abs == 0
