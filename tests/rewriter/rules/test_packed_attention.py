"""PackedMultiHeadAttention and PackedAttention, for which ONNX Runtime's CPU has no kernel:
against one MultiHeadAttention (or Attention) of ONNX Runtime a sequence, and the formula.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.contrib.packed_attention import (
    CASES,
    ENDS,
    HEADS,
    LENGTH,
    LENGTHS,
    OFFSETS,
    SIZE,
    TOKENS,
    WIDTH,
    Case,
    feeds,
    node,
)
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
TARGETS = [target("onnx-standard"), target("qnn", "2.7.0"), target("qnn", "2.4.0")]


def expected(case: Case, given: ort.Arrays) -> np.ndarray:
    """Softmax(scale·q·kᵀ + bias)·v of each sequence by itself, in float64."""
    if case.weights:
        packed = given["x"].astype(np.float64) @ given["w"] + given["bias"]
        query, key, value = np.split(packed, [WIDTH, 2 * WIDTH], axis=-1)
    else:
        query, key, value = (given[n].astype(np.float64) for n in "qkv")
        if case.bias:
            parts = np.split(given["bias"], [WIDTH, 2 * WIDTH])
            query, key, value = query + parts[0], key + parts[1], value + parts[2]
    results = []
    for b, (start, end) in enumerate(pairwise(ENDS.tolist())):
        count = end - start

        def heads(x: np.ndarray, start: int = start, end: int = end) -> np.ndarray:
            return x[start:end].reshape(end - start, HEADS, -1).transpose(1, 0, 2)

        scores = heads(query) @ heads(key).transpose(0, 2, 1)
        scores = scores * (case.scale or 1 / np.sqrt(SIZE))
        if case.added:
            block = np.broadcast_to(given["added"], (len(LENGTHS), HEADS, LENGTH, LENGTH))
            scores = scores + block[b, :, :count, :count]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        results.append((weights @ heads(value)).transpose(1, 0, 2).reshape(count, -1))
    return np.concatenate(results)


@pytest.mark.parametrize("ep", TARGETS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_formula(case: Case, ep: Target) -> None:
    model = node(case)
    given = feeds(model)
    lower(model, ep)
    assert not any(n.domain for n in model.graph)
    assert ort.worst(expected(case, given), ort.run(model, given)["y"]) < 2e-6


def test_the_formula_is_that_of_an_attention_a_sequence() -> None:
    case = CASES[1]
    given = feeds(node(case))
    for b, (start, end) in enumerate(pairwise(ENDS.tolist())):
        builder, count = Builder(), end - start
        inputs = [builder.input(n, F32, (1, count, WIDTH)) for n in "qkv"]
        inputs.append(builder.const("bias", given["bias"]))
        y = builder.op("com.microsoft::MultiHeadAttention", *inputs, name="y", num_heads=HEADS)
        single = builder.model([(y, F32, (1, count, WIDTH))])
        reference = ort.run(single, {n: given[n][None, start:end] for n in "qkv"})["y"][0]
        assert ort.worst(expected(case, given)[start:end], reference) < 2e-6, b


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(Case("late", added=(1, 1, 4, 4), stored=False)),
         "token_offset, which says where the bias applies, is not a constant"),
        (node(Case("short", added=(1, 1, 3, 3))), r"attention_bias \(1, 1, 3, 3\) does not fit"),
        (node(Case("filter"), mask_filter_value=-1.0), "mask_filter_value=-1 lets other sequences"),
        (node(Case("sizes", weights=True), qkv_hidden_sizes=[16, 16, 8]), "do not fit weights"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)  # fmt: skip
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, TARGETS[0])


def test_refuses_packed_inputs() -> None:
    b = Builder()
    query = b.input("query", F32, (TOKENS, HEADS, 3, SIZE))
    tail = [b.const("offsets", OFFSETS), b.const("ends", ENDS)]
    inputs = [query, None, None, None, *tail]
    y = b.op("com.microsoft::PackedMultiHeadAttention", *inputs, name="y", num_heads=HEADS)
    with pytest.raises(Stuck, match="packed into one another are not handled"):
        lower(b.model([(y, F32, (TOKENS, WIDTH))]), TARGETS[0])


@htp.needs_qnn
@pytest.mark.parametrize("case", [CASES[i] for i in (0, 4, 5, 8)], ids=lambda case: case.name)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model)
    lower(model, TARGETS[0])
    htp.check(model, given, {"y": expected(case, given)}, tmp_path)
