"""The inputs that parity draws for Attention."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.parity.domains import DOMAINS
from tests import ort


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32], ids=lambda t: t.__name__)
def test_parity_draws_masks_that_hide_nothing_some_keys_and_whole_rows(dtype: type) -> None:
    shapes = {"K": (2, 2, 5, 8), "attn_mask": (2, 1, 3, 5), "nonpad_kv_seqlen": (2,)}
    given: ort.Arrays = {"attn_mask": np.ones((2, 1, 3, 5), dtype)}
    hidden, lengths = [], []
    for seed in range(3):
        drawn = DOMAINS["Attention"].draw(shapes, given, seed)
        mask = drawn["attn_mask"]
        assert mask.dtype == dtype
        hidden.append(~mask if dtype is np.bool_ else mask < -1e4)
        lengths.append(drawn["nonpad_kv_seqlen"])
        if dtype is not np.bool_:
            assert np.isneginf(mask[hidden[-1].all(axis=-1)]).all()
    assert [h.any() for h in hidden] == [False, True, True]
    assert [h.all(axis=-1).any() for h in hidden] == [False, False, True]
    assert not any(h.all() for h in hidden)
    assert np.concatenate(lengths).min() >= 1
    assert np.concatenate(lengths).max() <= 5
    assert len({tuple(length) for length in lengths}) > 1


def test_parity_of_a_short_mask_draws_lengths_within_it() -> None:
    shapes = {"K": (2, 2, 9, 8), "attn_mask": (3, 4), "nonpad_kv_seqlen": (2,)}
    drawn = [DOMAINS["Attention"].draw(shapes, {}, seed) for seed in range(6)]
    assert max(d["nonpad_kv_seqlen"].max() for d in drawn) == 4
