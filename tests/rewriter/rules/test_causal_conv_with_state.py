"""CausalConvWithState against ONNX Runtime's kernel, and against the sum over its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.contrib.causal_conv_with_state import feeds, node

STANDARD = target("onnx-standard")
CASES: list[dict[str, Any]] = [
    {},
    {"tokens": 1},
    {"tokens": 1, "bias": True, "activation": "silu"},
    {"past": False},
    {"tokens": 1, "past": False, "activation": "swish"},
    {"dilation": 2, "kernel": 4, "bias": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnx_runtime(case: dict[str, Any]) -> None:
    model = node(**case)
    given = feeds(model)
    expected = ort.run(model, given)
    report = lower(model, STANDARD)
    assert [rule.rule for rule in report.fired] == ["convolution_of_state_and_input"]
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert ort.worst(array, actual[name]) < 1e-6


def test_a_token_sees_the_columns_before_it() -> None:
    model = node(tokens=2, activation="silu")
    weight = model.graph.initializers["w"].const_value
    assert weight is not None
    given = feeds(model)
    columns = np.concatenate([given["past"], given["x"]], axis=2).astype(np.float64)
    taps = weight.numpy()[:, 0].astype(np.float64)
    total = np.stack([(columns[:, :, at : at + 3] * taps).sum(-1) for at in range(2)], axis=2)
    lower(model, STANDARD)
    found = ort.run(model, given)
    assert ort.worst(total / (1 + np.exp(-total)), found["y"]) < 1e-6
    np.testing.assert_array_equal(found["present"], columns[:, :, -2:].astype(np.float32))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"channels_last": 1}, "channels_last"),
        ({"state_window": 2}, "state_window"),
        ({"activation": "gelu"}, "activation gelu is not known"),
        ({"kernel": 1, "past": False}, "a weight of one column"),
    ],
)
def test_refuses_what_it_does_not_build(case: dict[str, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(**case), STANDARD)


@htp.needs_qnn
def test_placed_whole_on_htp(tmp_path: Path) -> None:
    model = node(tokens=1, bias=True, activation="silu")
    given = feeds(model)
    expected = ort.run(model, given)
    lower(model, target("qnn", "2.7.0"))
    htp.check(model, given, expected, tmp_path)
