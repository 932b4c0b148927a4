"""Attention lowered, against ONNX Runtime's kernel, or onnx's reference where that refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tests import ort
from tests.attention import (
    CAUSAL,
    DEAD,
    F16,
    LOWEST,
    Case,
    inputs,
    lowered,
    node,
    oracle,
    reference,
    shown,
)
from tests.attention_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_oracle(case: Case) -> None:
    feeds = inputs(case)
    expected = oracle(case, feeds)
    model, _ = lowered(case, feeds)
    assert "Attention" not in {n.op_type for n in model.graph}
    actual = ort.run(model, feeds)
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        if name.startswith("present"):
            np.testing.assert_array_equal(actual[name], array)
        else:
            assert ort.worst(shown(name, array), shown(name, actual[name])) < 2e-6, name


HALF = [
    Case("plain"),
    Case("causal", CAUSAL, tokens=5),
    Case("bool mask with an empty row", mask="bool", hide=DEAD),
    Case("-inf mask with an empty row", mask=-np.inf, hide=DEAD),
    Case("nonpad shorter than the queries", CAUSAL, nonpad=(2, 4)),
    Case("softmax in float", {"softmax_precision": 1, "softcap": 2.0}),
]


@pytest.mark.parametrize("case", HALF, ids=lambda case: case.name)
def test_half_precision(case: Case) -> None:
    feeds = inputs(case)
    exact = ort.run(node(case, feeds), feeds)["Y"]
    model, _ = lowered(case, feeds, F16)
    half = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in feeds.items()}
    with np.errstate(over="ignore"):
        assert ort.worst(exact, ort.run(model, half)["Y"].astype(np.float32)) < 4e-3


def test_softmax_in_half_precision_is_honoured() -> None:
    """By the reference: ORT's CPU has no fp16 softmax and takes casts there and back away."""
    case = Case("fp16", {"softmax_precision": 10})
    feeds = inputs(case)
    model, report = lowered(case, feeds)
    assert report.ops_after["Cast"] == 2
    actual = reference(model, feeds)["Y"]
    expected = reference(node(case, feeds), feeds)["Y"]
    wide = reference(node(Case("fp32"), feeds), feeds)["Y"]
    assert ort.worst(expected, actual) < 1e-3
    assert ort.worst(wide, actual) > 1e-4


def test_one_causal_query_among_several_new_keys() -> None:
    """Where ORT 1.32 drops the causal bound; the reference and the standard's text keep it."""
    case = Case("one query", CAUSAL, tokens=1, keys=6, past=4, present=True)
    feeds = inputs(case)
    actual = ort.run(lowered(case, feeds)[0], feeds)["Y"]
    assert ort.worst(reference(node(case, feeds), feeds)["Y"], actual) < 2e-6
    assert ort.worst(ort.run(node(case, feeds), feeds)["Y"], actual) > 0.1


BIASED = [
    Case("causal", CAUSAL, tokens=5, scores=2),
    Case("bool mask", mask="bool", scores=2),
    Case("constant bool mask", mask="bool", constant=True, scores=2),
    Case("-inf mask", mask=-np.inf, scores=2),
    Case("lowest mask", mask=LOWEST, scores=2, hide=DEAD),
    Case("constant mask of -1e9", mask=-1e9, constant=True, scores=2),
    Case("short float mask", mask="float", mask_shape=(3, 3), scores=2),
    Case("lengths and mask", CAUSAL, mask="float", nonpad=(3, 5), scores=2),
    Case("window on a past", {"left_window_size": 1}, past=2, scores=2, opset=25),
]


@pytest.mark.parametrize("case", BIASED, ids=lambda case: case.name)
def test_scores_with_their_bias_are_the_standards(case: Case) -> None:
    """Where ORT 1.32 gives the lowest float: a hidden key has -inf, and low masks are numbers."""
    feeds = inputs(case)
    expected = reference(node(case, feeds), feeds)["qk"]
    actual = ort.run(lowered(case, feeds)[0], feeds)["qk"]
    assert np.isfinite(expected).any()
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-6)


def test_the_raw_scores_are_before_the_softcap() -> None:
    """Where ORT 1.32 and the reference of onnx 1.23.2 differ: the standard says 0 is raw."""
    case = Case("raw", {"softcap": 1.5}, scores=0)
    feeds = inputs(case)
    query = feeds["Q"].reshape(2, 2, 2, 3, 8)
    raw = np.einsum("bkgsd,bktd->bkgst", query, feeds["K"]).reshape(2, 4, 3, 5) / np.sqrt(8)
    assert ort.worst(raw, ort.run(lowered(case, feeds)[0], feeds)["qk"]) < 2e-6
    assert ort.worst(raw, reference(node(case, feeds), feeds)["qk"]) > 0.1
