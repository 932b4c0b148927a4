"""PackedMultiHeadAttention and PackedAttention, for which ONNX Runtime's CPU has no kernel:
against one MultiHeadAttention (or Attention) of ONNX Runtime a sequence, and the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from tests import htp, ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
TARGETS = [target("onnx-standard"), target("qnn", "2.7.0"), target("qnn", "2.4.0")]
HEADS, SIZE, LENGTH = 2, 8, 4
LENGTHS = (3, 1, 4)
TOKENS, WIDTH = sum(LENGTHS), HEADS * SIZE
ENDS = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int32)
VALID = [b * LENGTH + i for b, n in enumerate(LENGTHS) for i in range(n)]
PADS = sorted(set(range(len(LENGTHS) * LENGTH)) - set(VALID))
OFFSETS = np.array(VALID + PADS, np.int32).reshape(len(LENGTHS), LENGTH)


@dataclass(frozen=True)
class Case:
    """One node; ``weights`` makes it a PackedAttention."""

    name: str
    weights: bool = False
    bias: bool = False
    added: tuple[int, ...] = ()
    scale: float | None = None
    value: int = WIDTH
    stored: bool = True

    @property
    def op(self) -> str:
        return "PackedAttention" if self.weights else "PackedMultiHeadAttention"


def node(case: Case, **more: Any) -> ir.Model:
    b = Builder()

    def integers(name: str, array: np.ndarray) -> ir.Value:
        return b.const(name, array) if case.stored else b.input(name, I32, array.shape)

    widths = (WIDTH, WIDTH, case.value)
    total = sum(widths)
    inputs: list[ir.Value | None]
    if case.weights:
        inputs = [b.input("x", F32, (TOKENS, 12)), b.input("w", F32, (12, total))]
    else:
        inputs = [b.input(n, F32, (TOKENS, width)) for n, width in zip("qkv", widths, strict=True)]
    inputs.append(b.input("bias", F32, (total,)) if case.bias or case.weights else None)
    inputs += [integers("offsets", OFFSETS), integers("ends", ENDS)]
    if case.added:
        inputs.append(b.input("added", F32, case.added))
    said: dict[str, Any] = {"scale": case.scale}
    said["qkv_hidden_sizes"] = widths if case.weights and case.value != WIDTH else None
    said |= more
    y = b.op(
        f"com.microsoft::{case.op}",
        *inputs,
        name="y",
        num_heads=HEADS,
        **{k: v for k, v in said.items() if v is not None},
    )
    return b.model([(y, F32, (TOKENS, case.value))])


def feeds(model: ir.Model) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]
        found[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    return found | {"offsets": OFFSETS, "ends": ENDS}


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


CASES = [
    Case("plain"),
    Case("bias", bias=True),
    Case("values of another width", value=24),
    Case("scale", scale=0.2),
    Case("lengths at run time", stored=False),
    Case("attention bias", added=(3, 2, 4, 4)),
    Case("attention bias for all", added=(1, 1, 4, 4)),
    Case("attention bias a sequence", added=(3, 1, 4, 4)),
    Case("weights", weights=True),
    Case("weights, values of another width", weights=True, value=24),
    Case("weights, attention bias", weights=True, added=(1, 2, 4, 4), scale=0.3),
]


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
