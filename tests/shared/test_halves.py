"""The measure of the file in float16 sees one step of float16, and what is near a tie."""

from __future__ import annotations

import numpy as np
import pytest

from tests.shared.halves import NEAR, stores

EXACT = np.random.default_rng(0).standard_normal(1000) * 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_stored_may_not_be_a_step_off(dtype: type[np.floating]) -> None:
    stored = EXACT.astype(dtype)
    assert stores(EXACT, stored)
    if dtype == np.float16:
        for end in (-np.inf, np.inf):
            moved = stored.copy()
            moved[7] = np.nextafter(moved[7], dtype(end))
            assert not stores(EXACT, moved)
    assert not stores(EXACT, np.full_like(stored, np.nan))


def test_both_neighbours_of_a_tie_may_be_stored() -> None:
    """1 + 2^-11 lies between two numbers of float16; what is near may fall on either side."""
    tie = 1 + 2.0**-11
    lower, upper = (np.append(EXACT, end).astype(np.float16) for end in (1.0, 1 + 2.0**-10))
    assert stores(np.append(EXACT, tie), lower)
    assert stores(np.append(EXACT, tie), upper)
    beyond = np.append(EXACT, tie + 1.1 * NEAR * EXACT.std())
    assert not stores(beyond, lower)
    assert stores(beyond, upper)
