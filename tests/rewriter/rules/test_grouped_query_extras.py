"""What GroupQueryAttention can add to its scores: caps, sinks, biases, and positions by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from tests import ort
from tests.grouped_query import F32, Case, feeds, node

QNN = target("qnn", "2.7.0")
CASES = [
    Case("decode"),
    Case("decode in a buffer", capacity=16, total=16),
    Case("prefill", tokens=8, capacity=0, total=8, valid=(8,)),
    Case("window in a chunk", tokens=4, capacity=16, total=16, valid=(13,), window=6),
    Case("batch of two", valid=(9, 6)),
    Case("one head a group", tokens=3, capacity=8, total=11, valid=(11,), kv_heads=4),
]
EXTRAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "softcap": ({"softcap": 2.0}, {}),
    "smooth softmax": ({"smooth_softmax": 1}, {}),
    "sinks": ({}, {"head_sink": ("heads",)}),
    "sinks are not added to smooth softmax": ({"smooth_softmax": 1}, {"head_sink": ("heads",)}),
    "sinks are not capped": ({"softcap": 2.0}, {"head_sink": ("heads",)}),
    "one bias": ({}, {"attention_bias": (1, 1, "tokens", "total")}),
    "a bias a head": ({}, {"attention_bias": (1, "heads", "tokens", "total")}),
    "a bias a sequence": ({}, {"attention_bias": ("batch", 1, "tokens", "total")}),
    "a bias is not capped": ({"softcap": 2.0}, {"attention_bias": (1, 1, "tokens", "total")}),
}


def _filled(
    case: Case, shapes: dict[str, tuple[Any, ...]], **attributes: object
) -> tuple[ir.Model, ort.Arrays]:
    sizes = {"batch": len(case.valid), "heads": case.heads, "tokens": case.tokens,
             "total": case.total}  # fmt: skip
    fixed = {name: tuple(sizes.get(d, d) for d in dims) for name, dims in shapes.items()}
    extra = {name: (F32, dims) for name, dims in fixed.items()}
    model = node(case, extra=extra, **attributes)  # type: ignore[arg-type]  # loosely typed in tests
    given = feeds(model, case)
    rng = np.random.default_rng(5)
    for name, dims in fixed.items():
        given[name] = 2 * rng.standard_normal(dims).astype(np.float32)
    return model, given


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("extra", list(EXTRAS))
def test_equals_the_kernel(extra: str, case: Case) -> None:
    attributes, shapes = EXTRAS[extra]
    model, given = _filled(case, shapes, **attributes)
    expected = ort.run(model, given)
    plain = ort.run(node(case), given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert not any(n.domain for n in model.graph)
    assert ort.worst(expected["y"], actual["y"]) < 2e-6
    assert ort.worst(plain["y"], actual["y"]) > 1e-3, "it changes something"


def test_stored_sinks_are_a_constant_column() -> None:
    model, given = _filled(CASES[0], {"head_sink": ("heads",)})
    expected = ort.run(model, given)
    sink = next(v for v in model.graph.inputs if v.name == "head_sink")
    model.graph.inputs.remove(sink)
    sink.const_value = ir.tensor(given["head_sink"], name="head_sink")
    model.graph.register_initializer(sink)
    lower(model, QNN)
    assert "Expand" not in {n.op_type for n in model.graph if "sink" in (n.name or "")}
    assert ort.worst(expected["y"], ort.run(model, given)["y"]) < 2e-6


def test_a_bias_that_hides_stays_finite() -> None:
    """D06: the lowest float hides a key, and would be -inf in fp16."""
    model, given = _filled(CASES[0], {"attention_bias": (1, 1, "tokens", "total")})
    given["attention_bias"][..., 2:5] = np.finfo(np.float32).min
    expected = ort.run(model, given)
    lower(model, QNN)
    assert ort.worst(expected["y"], ort.run(model, given)["y"]) < 2e-6


@pytest.mark.parametrize("case", CASES[:2] + CASES[4:], ids=lambda case: case.name)
def test_positions_by_hand_turn_and_do_not_mask(case: Case) -> None:
    shape = (len(case.valid), case.tokens)
    model = node(case, extra={"position_ids": (ir.DataType.INT64, shape)})
    given = feeds(model, case)
    given["position_ids"] = np.random.default_rng(2).integers(0, 100, shape)
    expected = ort.run(model, given)
    lower(model, QNN)
    actual = ort.run(model, given)
    assert ort.worst(expected["y"], actual["y"]) < 2e-6
    last = (slice(None), slice(None), slice(case.valid[0] - 1, case.valid[0]))
    if len(case.valid) == 1:
        assert ort.worst(expected["present_key"][last], actual["present_key"][last]) < 2e-6


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((1, 1, 1, 7), r"attention_bias \(1, 1, 1, 7\) does not fit 1 tokens and 9 keys"),
     ((1, 2, 1, 9), r"attention_bias \(1, 2, 1, 9\) does not fit")],
)  # fmt: skip
def test_refuses_a_bias_that_does_not_fit(shape: tuple[int, ...], reason: str) -> None:
    model = node(Case("plain"), extra={"attention_bias": (F32, shape)})
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


def test_refuses_sinks_that_are_not_one_a_head() -> None:
    with pytest.raises(Stuck, match=r"head_sink \(2,\) is not one number a head"):
        lower(node(Case("plain"), extra={"head_sink": (F32, (2,))}), QNN)
