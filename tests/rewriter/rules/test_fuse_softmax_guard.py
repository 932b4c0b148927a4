"""A guard against NaN goes only where a softmax cannot give any."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from tests import ort
from tests.written_attention import LOWEST, attention, given

F16 = ir.DataType.FLOAT16
QNN = target("qnn", "2.4.0")


@pytest.mark.parametrize("scale", ["score", "split", "divisor", ""])
@pytest.mark.parametrize("mask", ["", "add", "add first"])
@pytest.mark.parametrize("hidden", [LOWEST, -1e9, -1e4])
def test_goes_where_the_mask_is_finite(hidden: float, mask: str, scale: str) -> None:
    model = attention(scale=scale, mask=mask, hidden=hidden, guard=True)
    feeds = given(model, hide=True)
    expected = ort.run(model, feeds)["y"]
    lower(model, QNN)
    assert not {"IsNaN", "Equal", "Attention"} & {node.op_type for node in model.graph}
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 2e-6


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "add"},
        {"mask": "float"},
        {"mask": "add", "hidden": -1e4, "dtype": F16},
        {"mask": "select", "hidden": LOWEST},
    ],
    ids=str,
)
def test_stays_where_something_may_be_no_number(changes: dict[str, Any]) -> None:
    """Of a mask that is -inf or not known, and of scores that may overflow a float16."""
    report = plan(attention(guard=True, **changes), QNN)
    assert not any(site.rule == "softmax_guard" for site in report.fired)


def test_a_graph_output_keeps_its_name() -> None:
    model = attention(mask="add", hidden=LOWEST, guard=True, used="guarded")
    feeds = given(model, hide=True)
    expected = ort.run(model, feeds)
    lower(model, QNN)
    found = ort.run(model, feeds)
    assert np.array_equal(found["guarded"], expected["guarded"])
    assert [v.name for v in model.graph.outputs] == ["y", "guarded"]
    assert isinstance(model.graph, ir.Graph)
