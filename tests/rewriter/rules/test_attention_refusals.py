"""Attention nodes that are left alone, each with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.lowering import Stuck, lower
from tests.attention import QNN, STANDARD, Case, inputs, node

REFUSED = [
    (Case("scale", {"scale": -1.0}), "scale=-1.0 is not positive"),
    (Case("scale", {"scale": 0.0}), "scale=0.0 is not positive"),
    (Case("causal", {"is_causal": 2}), "is_causal=2 is not defined"),
    (Case("mode", scores=4), "qk_matmul_output_mode=4 is not defined"),
    (Case("window", {"left_window_size": -2}, opset=25), "left_window_size=-2 is not defined"),
    (Case("window", {"right_window_size": -2}, opset=25), "right_window_size=-2 is not defined"),
    (Case("int8", {"softmax_precision": 3}), r"softmax_precision=3 \(INT8\) is not handled"),
    (Case("bf16", {"softmax_precision": 16}), "finds no kernel for bfloat16"),
    (Case("heads", {"q_num_heads": 2}), "q_num_heads=2, and Q has 4 heads"),
    (Case("heads", {"kv_num_heads": 4}), "kv_num_heads=4, and K has 2 heads"),
    (Case("groups", kv_heads=3), "4 query heads do not divide by 3"),
    (Case("both", nonpad=(3, 4), past=2), "nonpad_kv_seqlen together with past_key"),
    (Case("mask", mask="bool", mask_shape=(3, 6)), "attn_mask .* does not fit scores"),
    (Case("mask", mask="bool", mask_shape=(2, 5)), "attn_mask .* does not fit scores"),
    (Case("mask", mask="bool", mask_shape=(2, 3, 5)), "attn_mask .* does not fit scores"),
    (Case("mask", mask="bool", mask_shape=(1, 1, 1, 3, 5)), "attn_mask .* does not fit scores"),
]


@pytest.mark.parametrize(("case", "reason"), REFUSED, ids=lambda v: getattr(v, "name", v))
def test_refuses_by_name(case: Case, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(node(case, inputs(case)), QNN)


def _changed(case: Case, **changes: np.ndarray[Any, Any] | None) -> ir.Model:
    feeds: dict[str, Any] = {**inputs(case), **changes}
    return node(case, {k: v for k, v in feeds.items() if v is not None})


def _array(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (_changed(Case("c", past=2), past_value=None), "past_key and past_value have to be given"),
        (
            _changed(Case("c"), V=np.zeros((2, 2, 5, 6), np.float64)),
            "Q, K and V are of the types FLOAT, FLOAT, DOUBLE, not of one",
        ),
        (_changed(Case("c"), K=_array(2, 2, 0, 8), V=_array(2, 2, 0, 6)), "K is empty"),
        (_changed(Case("c", past=2), past_key=_array(2, 4, 2, 8)), "past_key .* does not fit rows"),
        (_changed(Case("c", past=2), past_value=_array(2, 2, 2, 8)), "past_value .* not fit rows"),
        (_changed(Case("c"), Q=_array(2, 2, 4, 3, 8)), "Q has rank 5, not 3 or 4"),
        (_changed(Case("c"), K=_array(2, 2, 5, 4)), "heads of Q and K have 8 and 4 features"),
        (_changed(Case("c"), V=_array(2, 2, 4, 6)), "K and V have 2 and 2 heads of 5 and 4 rows"),
        (_changed(Case("c", rank=3), Q=_array(2, 3, 33)), "33 features of Q do not divide by 4"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refuses_inputs_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@pytest.mark.parametrize("name", ["q_num_heads", "kv_num_heads"])
def test_refuses_rank_3_without_heads(name: str) -> None:
    model = node(case := Case("c", rank=3), inputs(case))
    del next(iter(model.graph)).attributes[name]
    with pytest.raises(Stuck, match=f"has rank 3, and attribute {name} is missing"):
        lower(model, QNN)


@pytest.mark.parametrize("shape", [("n", 5), ("batch", 1, 3, 4)], ids=["rows", "short, batch"])
def test_refuses_masks_whose_dims_are_not_fixed(shape: tuple[int | str, ...]) -> None:
    case = Case("c", mask="bool", mask_shape=(3, 5))
    model = node(case, inputs(case), batch="batch")
    next(v for v in model.graph.inputs if v.name == "attn_mask").shape = ir.Shape(shape)
    with pytest.raises(Stuck, match="attn_mask has a dim that is not fixed"):
        lower(model, STANDARD)


@pytest.mark.parametrize("name", ["Q", "attn_mask", "past_key"])
def test_refuses_dims_that_are_not_fixed(name: str) -> None:
    case = Case("c", past=2, mask="bool", mask_shape=(2, 1, 3, 7))
    model = node(case, inputs(case))
    value = next(v for v in model.graph.inputs if v.name == name)
    assert value.shape is not None
    value.shape = ir.Shape([*value.shape[:2], "n", value.shape[3]])
    with pytest.raises(Stuck, match=f"{name} has a dim that is not fixed"):
        lower(model, STANDARD)
