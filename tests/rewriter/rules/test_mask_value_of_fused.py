"""Fused attentions lowered with a mask value that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import attention, grouped_query, ort
from tests.contrib import multi_head_attention as many

QNN = target("qnn", "2.4.0")
Made = tuple[ir.Model, ort.Arrays]
MANY = {case.name: case for case in many.CASES}


def _grouped() -> Made:
    case = grouped_query.Case("window", tokens=3, capacity=8, total=8, valid=(8,), window=3)
    return (model := grouped_query.node(case)), grouped_query.feeds(model, case)


def _bool_mask() -> Made:
    case = attention.Case("bool", mask="bool", hide=((0, 1), (2, 0)))
    feeds = attention.inputs(case)
    return attention.node(case, feeds), feeds


def _causal() -> Made:
    case = attention.Case("causal", attributes=attention.CAUSAL)
    feeds = attention.inputs(case)
    return attention.node(case, feeds), feeds


def _padded(name: str) -> Callable[[], Made]:
    def build() -> Made:
        return (model := many.node(MANY[name])), many.feeds(model, MANY[name])

    return build


CASES: dict[str, Callable[[], Made]] = {
    "GroupQueryAttention": _grouped, "Attention, bool mask": _bool_mask,
    "Attention, causal": _causal, "MultiHeadAttention": _padded("padding"),
    "MultiHeadAttention, causal": _padded("padding and causal"),
}  # fmt: skip


def _lowest(model: ir.Model) -> float:
    stored = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    return min(float(t.numpy().min()) for t in stored if t.dtype.is_floating_point())


@pytest.mark.parametrize("value", [None, -1e4, -255.0, -50.0])
@pytest.mark.parametrize("case", CASES)
def test_hidden_by_the_value_that_was_asked_for(case: str, value: float | None) -> None:
    """The keys that come later than a token are three times as far in a MultiHeadAttention."""
    model, feeds = CASES[case]()
    expected = ort.run(model, feeds)
    report = lower(model, QNN, mask_value=value)
    actual = ort.run(model, feeds)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6
    far = 3 if case == "MultiHeadAttention, causal" else 1
    assert _lowest(model) == far * (-1e4 if value is None else value)
    said = [note for note in report.notes if "hidden by" in note]
    assert len(said) == (value is not None)


def test_float_masks_stay_what_they_are() -> None:
    """Rows of -1e4 are rows like others, those of the lowest float give 0: both as before."""
    case = attention.Case("float", mask=-1e4, hide=((0, 1), (1, None)))
    feeds = attention.inputs(case)
    for mask in (case.mask, attention.LOWEST):
        feeds = attention.inputs(replace(case, mask=mask))
        model = attention.node(case, feeds)
        plain = model.clone()
        lower(plain, attention.QNN)
        lower(model, attention.QNN, mask_value=-255.0)
        np.testing.assert_array_equal(ort.run(plain, feeds)["Y"], ort.run(model, feeds)["Y"])
