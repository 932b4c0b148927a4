"""Public reports of this field on windows and lengths (../shared/reports.md, D07, D08, D09)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from tests import ort
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
QNN = target("qnn", "2.7.0")


def _grouped(tokens: int, past: int, window: int) -> ir.Model:
    """GroupQueryAttention of one head of 8, that many rows already in its cache."""
    b = Builder()
    qkv = [b.input(name, F32, (1, tokens, 8)) for name in ("q", "k", "v")]
    cache = [b.input(f"past_{name}", F32, (1, 1, past, 8)) for name in ("key", "value")]
    lengths = [
        b.const("seqlens_k", np.array([past + tokens - 1], np.int32)),
        b.const("total", np.array(past + tokens, np.int32)),
    ]
    outputs = b.node(
        "com.microsoft::GroupQueryAttention",
        [*qkv, *cache, *lengths],
        ["y", "key", "value"],
        num_heads=1, kv_num_heads=1, local_window_size=window,
    )  # fmt: skip
    whole = (1, 1, past + tokens, 8)
    return b.model([(outputs[0], F32, (1, tokens, 8)), *((v, F32, whole) for v in outputs[1:])])


def _seen(model: ir.Model, tokens: int, past: int) -> list[list[int]]:
    """Keys that each query gets: scores are 0, values the unit matrix."""
    rows = np.eye(8, dtype=np.float32)
    given = {name: np.zeros((1, tokens, 8), np.float32) for name in "qk"}
    given |= {"v": rows[None, past : past + tokens], "past_value": rows[None, None, :past]}
    given |= {"past_key": np.zeros((1, 1, past, 8), np.float32)}
    return [np.flatnonzero(row).tolist() for row in ort.run(model, given)["y"][0]]


@pytest.mark.parametrize("ep", ["qnn@2.7.0", "onnx-standard"])
@pytest.mark.parametrize(
    ("tokens", "past", "window", "keys"),
    [
        (1, 5, 3, [[3, 4, 5]]),
        (1, 5, 1, [[5]]),
        (1, 5, -1, [[0, 1, 2, 3, 4, 5]]),
        (5, 0, 3, [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]),
        (5, 0, 1, [[0], [1], [2], [3], [4]]),
    ],
    ids=str,
)
def test_d07_a_window_counts_the_token_itself(
    tokens: int, past: int, window: int, keys: list[list[int]], ep: str
) -> None:
    model = _grouped(tokens, past, window)
    assert _seen(model, tokens, past) == keys
    lower(model, target(ep))
    assert not any(node.op_type == "GroupQueryAttention" for node in model.graph)
    assert _seen(model, tokens, past) == keys


def test_d08_a_model_whose_layers_all_slide_keeps_its_window() -> None:
    """Twice as many tokens as the window is wide; the same without one is another model."""
    found = {}
    given: dict[str, Any] = {
        "input_ids": np.arange(3, 11)[None],
        "attention_mask": np.ones((1, 8), np.int64),
    }
    given |= {
        f"past_key_values.{layer}.{part}": np.zeros((1, 2, 0, 16), np.float32)
        for layer in range(2)
        for part in ("key", "value")
    }
    for window in (4, -1):
        model = decoder(Decoder(weights="fp32", window=window))
        fix_dims(model, {"batch": 1, "seq": 8, "past": 0})
        expected = ort.run(model, given)["logits"]
        lower(model, QNN)
        found[window] = ort.run(model, given)["logits"]
        assert ort.worst(expected, found[window]) < 1e-5
    assert ort.worst(found[-1][:, :4], found[4][:, :4]) < 1e-5
    assert ort.worst(found[-1][:, 4:], found[4][:, 4:]) > 1e-2


def test_d09_valid_lengths_come_from_the_data_of_the_mask() -> None:
    """Two sequences with 4 and 2 rows in caches of 4: the mask's width is 5 for both."""
    model = decoder(Decoder(weights="fp32"))
    fix_dims(model, {"batch": 2, "seq": 1, "past": 4})
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {"input_ids": np.array([[5], [9]])}
    given |= {
        f"past_key_values.{layer}.{part}": rng.standard_normal((2, 2, 4, 16)).astype(np.float32)
        for layer in range(2)
        for part in ("key", "value")
    }
    masks = np.array([[1] * 5, [1, 1, 1, 0, 0]]), np.ones((2, 5), np.int64)
    expected = [ort.run(model, {**given, "attention_mask": mask})["logits"] for mask in masks]
    assert ort.worst(expected[0][0], expected[1][0]) < 1e-6
    assert ort.worst(expected[0][1], expected[1][1]) > 1e-2
    lower(model, QNN)
    for mask, reference in zip(masks, expected, strict=True):
        found = ort.run(model, {**given, "attention_mask": mask})["logits"]
        assert ort.worst(reference, found) < 1e-5
