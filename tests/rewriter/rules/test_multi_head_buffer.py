"""MultiHeadAttention over a buffer (past_sequence_length), and what it refuses by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import Stuck, lower
from rewriter.parity.sites import check_sites
from tests import htp, ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
QNN = target("qnn", "2.7.0")
HEADS, SIZE, CAPACITY = 2, 8, 12
WIDTH = HEADS * SIZE
INPUTS = (
    "query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key",
    "past_value", "past_sequence_length", "cache_indirection",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call: S tokens are written at row ``start`` of a buffer."""

    name: str
    tokens: int = 1
    new: int = 0
    start: int = 5
    batch: int = 2
    stored: bool = False
    mask: str = ""
    added: bool = False
    bias: bool = False
    causal: bool = False
    beams: int = 0
    outputs: int = 3

    @property
    def rows(self) -> int:
        return self.new or self.tokens

    @property
    def total(self) -> int:
        return self.start + self.rows


def node(case: Case, **more: Any) -> ir.Model:
    b = Builder()
    batch, rows, cache = case.batch, case.rows, (case.batch, HEADS, CAPACITY, SIZE)
    given: dict[str, ir.Value] = {
        name: b.input(name, F32, (batch, n, WIDTH))
        for name, n in (("query", case.tokens), ("key", rows), ("value", rows))
    }
    given |= {name: b.input(name, F32, cache) for name in ("past_key", "past_value")}
    start = "past_sequence_length"
    at = np.array([case.start], np.int32)
    given[start] = b.const(start, at) if case.stored else b.input(start, I32, (1,))
    if case.bias:
        given["bias"] = b.const("bias", b.rng.standard_normal(3 * WIDTH).astype(np.float32))
    letters = {"B": batch, "S": case.tokens, "T": case.total}
    if case.mask:
        shape = tuple(letters[letter] for letter in case.mask)
        given["key_padding_mask"] = b.input("key_padding_mask", I32, shape)
    if case.added:
        shape = (1, HEADS, case.tokens, case.total)
        given["attention_bias"] = b.input("attention_bias", F32, shape)
    if case.beams:
        shape = (batch // case.beams, case.beams, CAPACITY)
        given["cache_indirection"] = b.input("cache_indirection", I32, shape)
    inputs = [given.get(name) for name in INPUTS]
    while inputs[-1] is None:
        inputs.pop()
    names = ["y", "present_key", "present_value", "qk"][: case.outputs]
    found = b.node(
        "com.microsoft::MultiHeadAttention",
        inputs,
        names,
        num_heads=HEADS,
        unidirectional=int(case.causal),
        **more,
    )
    full = [(batch, case.tokens, WIDTH), cache, cache, (batch, HEADS, case.tokens, case.total)]
    return b.model([(v, F32, s) for v, s in zip(found, full, strict=False)])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    """Random inputs; rows of the cache that are not written yet hold rubbish."""
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]
        found[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    for name in ("past_key", "past_value"):
        found[name][:, :, case.start :] = 100.0
    found["past_sequence_length"] = np.array([case.start], np.int32)
    if case.mask:
        mask = rng.integers(0, 2, found["key_padding_mask"].shape)
        mask = rng.integers(1, case.total + 1, case.batch) if case.mask == "B" else mask
        mask[..., :1] = np.maximum(mask[..., :1], 1)
        found["key_padding_mask"] = mask.astype(np.int32)
    if case.beams:
        found["cache_indirection"] = np.zeros(found["cache_indirection"].shape, np.int32)
    return found


CASES = [
    Case("decode"),
    Case("chunk", tokens=4),
    Case("chunk, causal", tokens=4, causal=True),
    Case("at the beginning", tokens=4, start=0, causal=True),
    Case("at the end", tokens=4, start=CAPACITY - 4, causal=True),
    Case("more keys than tokens", tokens=2, new=3),
    Case("one beam", beams=1),
    Case("bias", tokens=4, bias=True, causal=True),
    Case("lengths", tokens=4, mask="B"),
    Case("lengths, causal", tokens=4, mask="B", causal=True),
    Case("start is stored", tokens=4, stored=True, causal=True),
    Case("start 0 is stored", tokens=4, stored=True, start=0),
    Case("full, start is stored", tokens=4, stored=True, start=CAPACITY - 4),
    Case("start is stored, scores", tokens=4, stored=True, outputs=4),
    Case("the mask says where", tokens=4, mask="BT"),
    Case("the mask of each token says where", tokens=4, mask="BST", causal=True),
    Case("the bias says where", added=True),
    Case("bias and mask", tokens=4, added=True, mask="BT"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_kernel(case: Case) -> None:
    model = node(case)
    given = feeds(model, case)
    expected = ort.run(model, given)
    lower(model, QNN)
    assert not any(n.domain for n in model.graph)
    actual = ort.run(model, given)
    assert list(actual) == list(expected)
    for name, reference in expected.items():
        assert ort.worst(reference, actual[name]) < 2e-6


def test_where_the_rows_go_changes_the_result() -> None:
    case = CASES[1]
    model = node(case)
    given = feeds(model, case)
    lower(model, QNN)
    first = ort.run(model, given)
    other = ort.run(model, given | {"past_sequence_length": np.array([4], np.int32)})
    assert ort.worst(first["y"], other["y"]) > 1e-2
    assert ort.worst(first["present_key"], other["present_key"]) > 1e-2


def test_sites_draw_a_start_that_fits(tmp_path: Path) -> None:
    for case in CASES[1:2] + CASES[6:7] + CASES[8:9] + CASES[14:15]:
        report = lower(node(case), QNN)
        parity = check_sites(report.fired, tmp_path, 0)
        assert [site.ok for site in parity] == [True], parity


def _without(model: ir.Model, *names: str) -> ir.Model:
    for index, value in enumerate(model.graph[0].inputs):
        if value is not None and value.name in names:
            model.graph[0].replace_input_with(index, None)
            model.graph.inputs.remove(value)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (node(Case("two beams", beams=2)),
         "cache_indirection reorders the cache of 2 beams at run time: use one"),
        (node(Case("scores", outputs=4)),
         "qk has as many columns as past_sequence_length says at run time"),
        (node(Case("late", tokens=4, start=10, stored=True)),
         "4 rows from 10 on do not fit a cache of 12 rows"),
        (node(Case("causal", tokens=2, new=3, causal=True)),
         "unidirectional=1 over 3 new keys of 2 tokens"),
        (_without(node(Case("one past")), "past_value"), "have to be given both, or neither"),
        (_without(node(Case("packed")), "key", "value"), "packed into one another are not handled"),
        (_without(node(Case("packed")), "value"), "packed into one another are not handled"),
    ],
    ids=lambda given: given if isinstance(given, str) else "node",
)  # fmt: skip
def test_refuses_by_name(model: ir.Model, reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("key_padding_mask", (2, 5), r"key_padding_mask \(2, 5\) is not handled"),
        ("key_padding_mask", (4,), r"key_padding_mask \(4,\) is not handled"),
        ("attention_bias", (1, 1, 1, 6), r"attention_bias \(1, 1, 1, 6\) does not fit 4 tokens"),
        ("past_key", (2, 2, 12, 4), r"past_key \(2, 2, 12, 4\) does not fit heads"),
    ],
)
def test_refuses_shapes_that_do_not_fit(name: str, shape: tuple[int, ...], reason: str) -> None:
    model = node(Case("all", tokens=4, stored=True, mask="BT", added=True))
    value = next(v for v in model.graph.inputs if v.name == name)
    value.shape = ir.Shape(shape)
    with pytest.raises(Stuck, match=reason):
        lower(model, QNN)


@htp.needs_qnn
@pytest.mark.parametrize("case", [CASES[i] for i in (0, 2, 8, 12, 14)], ids=lambda case: case.name)
def test_placed_whole_on_htp(case: Case, tmp_path: Path) -> None:
    model = node(case)
    given = feeds(model, case)
    for name in ("past_key", "past_value"):
        given[name][:, :, case.start :] = 2.0
    expected = ort.run(model, given)
    lower(model, QNN)
    htp.check(model, given, {"y": expected["y"]}, tmp_path)
