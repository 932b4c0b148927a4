"""Errors between arrays, and references that prove nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.parity.compare import BadReference, Error, compare, compare_runs


def test_figures() -> None:
    reference = np.array([1.0, -3.0], np.float32)  # largest 3, standard deviation 2
    error = compare(reference, np.array([1.0, -3.5], np.float32))
    assert error == Error(0.5, 0.5 / 3, 0.25, np.sqrt(0.125) / 2)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (np.array([1.0, np.nan]), "not finite"),
        (np.array([np.inf, 1.0]), "not finite"),
        (np.zeros(3), "all zeros, whatever"),
        (np.full((2, 3), 0.5), "0.5 everywhere, whatever"),
    ],
)
def test_bad_references_fail(reference: np.ndarray, reason: str) -> None:
    """D29: a kernel that returned only zeros was 'equal' to a rewrite that did too."""
    with pytest.raises(BadReference, match=reason):
        compare(reference, reference)
    with pytest.raises(BadReference, match=reason):
        compare_runs([(reference, reference), (reference, reference)])


def test_one_number_in_a_run_and_another_in_the_next_depends_on_the_inputs() -> None:
    """As a mean that is repeated does, and a mask that hides nothing in one run."""
    zero, half, row = np.zeros(3), np.full(3, 0.5), np.array([1.0, 3.0, 5.0])
    assert compare_runs([(half, half), (zero, zero)]).max_abs == 0
    error = compare_runs([(zero, zero + 0.5), (row, row)])
    spread = np.concatenate([zero, row]).std()
    assert (error.max_abs, error.max_rel) == (0.5, 0.1)
    assert error.max_std == pytest.approx(0.5 / spread)


def test_what_has_one_element_or_no_input_may_be_one_number() -> None:
    one, ones = np.zeros((1, 1)), np.ones(4)
    assert compare_runs([(one, one), (one, one)]) == Error(0, 0, 0, 0)
    assert compare_runs([(one, one + 2)]).max_abs == 2
    assert compare_runs([(ones, ones)], lambda: True).max_abs == 0
    assert compare_runs([(ones, ones + 1)], lambda: True).max_rel == 1
    mask = np.ones((2, 4), np.bool_)
    assert compare_runs([(mask, mask), (mask, mask)]).max_abs == 0
    assert compare_runs([(mask * 7, mask * 7)]).max_abs == 0


def test_a_nan_in_the_result_is_infinitely_far() -> None:
    assert compare(np.array([1.0, 2.0]), np.array([1.0, np.nan])).max_std == np.inf


def test_shapes_have_to_agree() -> None:
    with pytest.raises(BadReference, match="shapes differ"):
        compare(np.ones((2, 1)), np.ones((1, 2)))


def test_integers_and_nothing() -> None:
    assert compare(np.array([1, 2]), np.array([1, 4])).max_abs == 2
    assert compare(np.zeros((0, 4)), np.zeros((0, 4))).max_abs == 0
