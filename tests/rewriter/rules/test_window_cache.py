"""GroupQueryAttention with sliding_window_cache=1, against ONNX Runtime's kernel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.rules.parts.window_cache import kept
from tests import ort
from tests.grouped_query import Case, feeds, node

QNN = target("qnn", "2.7.0")


def case(
    name: str, *, capacity: int, tokens: int, valid: tuple[int, ...], total: int, window: int = 8
) -> Case:
    return Case(name, tokens, capacity, total, valid, window=window)


CASES = [
    case("first row", capacity=8, tokens=1, valid=(1,), total=9),
    case("not full yet", capacity=8, tokens=1, valid=(5,), total=9),
    case("just full", capacity=8, tokens=1, valid=(8,), total=9),
    case("one drops", capacity=8, tokens=1, valid=(9,), total=9),
    case("far beyond", capacity=8, tokens=1, valid=(31,), total=40),
    case("room, not full", capacity=12, tokens=1, valid=(11,), total=16),
    case("room, drops many", capacity=12, tokens=1, valid=(13,), total=16),
    case("room, after a drop", capacity=12, tokens=1, valid=(15,), total=16),
    case("room, twice dropped", capacity=12, tokens=1, valid=(18,), total=20),
    case("chunk", capacity=8, tokens=4, valid=(14,), total=16),
    case("chunk into room", capacity=12, tokens=4, valid=(15,), total=16),
    case("chunk longer than the buffer", capacity=8, tokens=12, valid=(20,), total=24),
    case("prompt as long as the buffer", capacity=8, tokens=8, valid=(8,), total=8),
    case("short prompt", capacity=8, tokens=5, valid=(5,), total=5),
    case("long prompt", capacity=8, tokens=20, valid=(20,), total=20),
    case("long prompt, room", capacity=12, tokens=20, valid=(20,), total=20),
    case("window of one", capacity=4, tokens=3, valid=(9,), total=9, window=1),
    case("batch of two lengths", capacity=12, tokens=1, valid=(18, 7), total=20),
]


def _model(this: Case, **more: object) -> tuple[ir.Model, ort.Arrays]:
    model = node(this, sliding_window_cache=1, **more)  # type: ignore[arg-type]  # loosely typed in tests
    given = feeds(model, this)
    rng = np.random.default_rng(3)
    for name in ("past_key", "past_value"):
        given[name] = rng.standard_normal(given[name].shape).astype(np.float32)
    return model, given


@pytest.mark.parametrize("this", CASES, ids=lambda this: this.name)
def test_equals_the_kernel(this: Case) -> None:
    model, given = _model(this)
    expected = ort.run(model, given)
    lower(model, QNN)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    assert ort.worst(expected["y"], actual["y"]) < 2e-6
    for name in ("present_key", "present_value"):
        assert actual[name].shape == expected[name].shape
        for batch, valid in enumerate(this.valid):
            rows = (batch, slice(None), slice(kept(valid, this.capacity, this.window)))
            assert ort.worst(expected[name][rows], actual[name][rows]) < 2e-6


@pytest.mark.parametrize("capacity", [8, 11])
def test_a_cache_fed_back_equals_a_window_over_everything(capacity: int) -> None:
    """Forty tokens one by one: the windowed node against itself lowered, each with its own."""
    this = case("decode", capacity=capacity, tokens=1, valid=(1,), total=48)
    original, given = _model(this)
    lowered = original.clone()
    lower(lowered, QNN)
    caches = [{k: given[k] for k in ("past_key", "past_value")} for _ in range(2)]
    rng = np.random.default_rng(0)
    for step in range(40):
        token = rng.standard_normal(given["qkv0"].shape).astype(np.float32)
        feed = {"qkv0": token, "seqlens_k": np.array([step], np.int32)}
        found = [
            ort.run(model, {**feed, **cache})
            for model, cache in zip((original, lowered), caches, strict=True)
        ]
        assert ort.worst(found[0]["y"], found[1]["y"]) < 2e-6, step
        caches = [{f"past_{k}": out[f"present_{k}"] for k in ("key", "value")} for out in found]


def test_softcap_and_sinks_over_a_window() -> None:
    extra = {"head_sink": (ir.DataType.FLOAT, (4,))}
    model, given = _model(CASES[6], extra=extra, softcap=2.0)
    expected = ort.run(model, given)["y"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, given)["y"]) < 2e-6


def test_refuses_a_buffer_shorter_than_the_window() -> None:
    this = case("short", capacity=6, tokens=1, valid=(6,), total=9)
    with pytest.raises(Stuck, match="a cache of 6 rows is shorter than the window, 8"):
        lower(_model(this)[0], QNN)


def test_refuses_a_bias() -> None:
    this = CASES[3]
    extra = {"attention_bias": (ir.DataType.FLOAT, (1, 1, 1, 9))}
    with pytest.raises(Stuck, match="attention_bias over a windowed cache is not handled"):
        lower(_model(this, extra=extra)[0], QNN)
