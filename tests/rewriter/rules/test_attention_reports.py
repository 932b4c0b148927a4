"""Attention lowered, by the public reports of what others got wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewriter.lowering import lower
from rewriter.rules.parts.masks import FLOOR
from rewriter.rules.parts.positions import MASKED
from tests import ort
from tests.attention import CAUSAL, DEAD, F16, F32, LOWEST, QNN, Case, inputs, lowered, node


def seen(case: Case, feeds: ort.Arrays) -> list[list[list[int]]]:
    """Which keys each query of each sequence really gets: V is the unit matrix, scores are 0."""
    feeds["K"] = np.zeros_like(feeds["K"])
    feeds["V"] = np.broadcast_to(np.eye(case.keys, dtype=np.float32), feeds["V"].shape).copy()
    y = ort.run(lowered(case, feeds)[0], feeds)["Y"][:, 0]
    return [[np.flatnonzero(row).tolist() for row in sequence] for sequence in y]


@pytest.mark.parametrize(
    ("nonpad", "keys"), [(4, [[0, 1, 2], [0, 1, 2, 3]]), (3, [[0, 1], [0, 1, 2]])]
)
@pytest.mark.parametrize("constant", [False, True], ids=["run-time", "constant"])
def test_d02_the_causal_offset_of_an_external_cache(
    nonpad: int, keys: list[list[int]], constant: bool
) -> None:
    case = Case("D02", CAUSAL, tokens=2, keys=4, out_size=4, nonpad=(nonpad, 4), constant=constant)
    assert seen(case, inputs(case)) == [keys, [[0, 1, 2], [0, 1, 2, 3]]]


def test_d02_the_causal_offset_of_a_past() -> None:
    case = Case("D02", CAUSAL, tokens=2, keys=2, past=3, out_size=5)
    feeds = inputs(case)
    feeds["past_key"] = np.zeros_like(feeds["past_key"])
    rows = np.broadcast_to(np.eye(5, dtype=np.float32), (2, 2, 5, 5))
    feeds |= {"K": np.zeros_like(feeds["K"]), "past_value": rows[:, :, :3], "V": rows[:, :, 3:]}
    y = ort.run(lowered(case, feeds)[0], feeds)["Y"]
    assert [np.flatnonzero(row).tolist() for row in y[0, 0]] == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("mask", ["bool", -np.inf])
@pytest.mark.parametrize("constant", [False, True], ids=["run-time", "constant"])
def test_d03_the_softcap_is_before_the_mask(mask: str | float, constant: bool) -> None:
    case = Case("D03", {"scale": 1.0, "softcap": 2.0}, tokens=1, keys=2, batch=1, heads=1,
                kv_heads=1, size=1, out_size=2, mask=mask, constant=constant)  # fmt: skip
    feeds = {
        "Q": np.array([[[[10.0]]]], np.float32),
        "K": np.array([[[[1.0], [0.0]]]], np.float32),
        "V": np.eye(2, dtype=np.float32)[None, None],
        "attn_mask": np.array([[True, False]]) if mask == "bool"
        else np.array([[0, mask]], np.float32),
    }  # fmt: skip
    assert ort.run(lowered(case, feeds)[0], feeds)["Y"].reshape(-1).tolist() == [1.0, 0.0]


def test_d04_heads_are_repeated_not_tiled() -> None:
    """The report's sizes; it measured 7e-8 for repeating and about 1.2 for tiling."""
    case = Case("D04", batch=1, tokens=3, keys=3, out_size=8)
    feeds = inputs(case)
    expected = ort.run(node(case, feeds), feeds)["Y"]
    model, _ = lowered(case, feeds)
    assert ort.worst(expected, ort.run(model, feeds)["Y"]) < 2e-7
    tiled = {**feeds, "Q": feeds["Q"][:, [0, 2, 1, 3]]}
    assert ort.worst(expected, ort.run(model, tiled)["Y"][:, [0, 2, 1, 3]]) > 0.1


def test_d05_rank_3_is_split_then_transposed() -> None:
    case = Case("D05", rank=3, batch=1, tokens=3, keys=5)
    feeds = inputs(case)
    actual = ort.run(lowered(case, feeds)[0], feeds)["Y"]
    assert actual.shape == (1, 3, 4 * 6)
    split = {
        name: feeds[name].reshape(1, -1, heads, size).transpose(0, 2, 1, 3)
        for name, heads, size in (("Q", 4, 8), ("K", 2, 8), ("V", 2, 6))
    }
    whole = ort.run(node(Case("rank 4", batch=1), split), split)["Y"]
    assert ort.worst(whole.transpose(0, 2, 1, 3).reshape(1, 3, 24), actual) < 2e-6


@pytest.mark.parametrize("hide", [((0, 1), (2, 4)), DEAD], ids=["some keys", "an empty row"])
@pytest.mark.parametrize("mask", [-3.4e38, LOWEST, -1e9, -np.inf])
@pytest.mark.parametrize("constant", [False, True], ids=["run-time", "constant"])
def test_d06_masks_survive_fp16(
    mask: float, hide: tuple[tuple[int, int | None], ...], constant: bool
) -> None:
    """An fp32 graph whose every value is cast to fp16, as HTP does: no NaN.

    A row that is hidden whole is 0, unless fp32 has a number for it that is known to the rule:
    its weights are equal then.
    """
    case = Case("D06", mask=mask, hide=hide, constant=constant)
    feeds = inputs(case)
    wide = ort.run(lowered(case, feeds)[0], feeds)["Y"]
    with np.errstate(over="ignore"):
        half = {k: v.astype(np.float16) for k, v in feeds.items()}
    narrow = ort.run(lowered(case, feeds, F16)[0], half)["Y"].astype(np.float32)
    if hide is DEAD:
        assert not narrow[:, :, 1].any()
        mean = feeds["V"].mean(axis=2).repeat(2, axis=1)
        known = constant and LOWEST < mask > -np.inf
        np.testing.assert_allclose(wide[:, :, 1], mean if known else 0 * mean, atol=1e-6)
        wide, narrow = (np.delete(y, 1, axis=2) for y in (wide, narrow))
    assert ort.worst(wide, narrow) < 4e-3
    for model in (lowered(case, feeds)[0], lowered(case, feeds, F16)[0]):
        for value in model.graph.initializers.values():
            if value.dtype in {F32, F16} and value.const_value is not None:
                assert np.abs(value.const_value.numpy()).max() <= -FLOOR


def test_d06_a_mask_and_the_largest_score_are_finite_in_fp16() -> None:
    largest_score = np.float16(30000)
    for lowest in (MASKED, FLOOR):
        assert np.isfinite(np.float16(lowest) - largest_score)
        assert np.exp(np.float32(lowest) + np.float32(5000)) == 0


def test_d07_the_left_window_counts_preceding_keys() -> None:
    """GroupQueryAttention's W = 3 is left_window_size = 2: the token itself and two before it."""
    case = Case("D07", {**CAUSAL, "left_window_size": 2}, tokens=6, keys=6, out_size=6, opset=25)
    rows = [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert seen(case, inputs(case)) == [rows, rows]


def test_d09_lengths_are_data() -> None:
    """One lowered model serves every length; nothing was taken from a shape."""
    case = Case("D09", CAUSAL, nonpad=(5, 5))
    feeds = inputs(case)
    model, _ = lowered(case, feeds)
    for lengths in ((5, 5), (4, 3), (1, 2), (0, 5)):
        feeds["nonpad_kv_seqlen"] = np.array(lengths)
        expected = ort.run(node(case, feeds), feeds)["Y"]
        assert ort.worst(expected, ort.run(model, feeds)["Y"]) < 2e-6


def test_d10_presents_keep_the_key_heads() -> None:
    case = Case("D10", CAUSAL, past=3, keys=2, present=True)
    actual = ort.run(lowered(case, feeds := inputs(case))[0], feeds)
    assert actual["present_key"].shape == (2, 2, 5, 8)
    assert actual["present_value"].shape == (2, 2, 5, 6)


NEUTRAL: dict[str, Any] = {
    "scale": 0.3, "is_causal": 1, "softcap": 1.5, "left_window_size": 1, "right_window_size": 1,
}  # fmt: skip


@pytest.mark.parametrize("changed", NEUTRAL)
def test_d10_no_attribute_is_ignored(changed: str) -> None:
    case = Case("plain", tokens=5, opset=25)
    feeds = inputs(case)
    plain = ort.run(lowered(case, feeds)[0], feeds)["Y"]
    other = replace(case, attributes={changed: NEUTRAL[changed]})
    assert ort.worst(plain, ort.run(lowered(other, feeds)[0], feeds)["Y"]) > 1e-2


def test_d20_every_value_has_a_dtype_and_a_shape() -> None:
    case = Case("D20", CAUSAL, past=3, keys=3, present=True, mask="bool", mask_shape=(3, 6))
    feeds = inputs(case)
    model = node(case, feeds)
    for value in model.graph.outputs:
        value.shape = None
    lower(model, QNN)
    for n in model.graph:
        for value in n.outputs:
            assert value.dtype is not None
            assert value.shape is not None
            assert value.shape.is_static()
