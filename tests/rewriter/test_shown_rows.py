"""Which masks of an Attention may hide every key of a query, as far as it is known before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.facts import facts_of
from rewriter.lowering import lower
from rewriter.shapes import infer_model
from tests.graphs import Builder

F32, F16, I64, BOOL = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.BOOL
S, T = 3, 5
Masks = Callable[[Builder], ir.Value]


def stored(*hidden: tuple[int, int | None], by: float = -np.inf, dtype: ir.DataType = F32) -> Masks:
    """A mask (S, T) in the file; key None hides the row."""
    mask = np.zeros((S, T), np.float32)
    for row, key in hidden:
        mask[row, slice(None) if key is None else key] = by

    def build(b: Builder) -> ir.Value:
        array = mask == 0 if dtype == BOOL else mask.astype(dtype.numpy())
        return b.const("mask", array)

    return build


def causal(b: Builder, *, first: int = 0) -> ir.Value:
    """Where(key <= query + first, 0, -inf), as exporters count it."""
    keys, rows = (b.const(n, np.arange(c)) for n, c in (("keys", T), ("rows", S)))
    column = b.op("Unsqueeze", rows, b.const("axis", np.array([1])), name="column")
    later = b.op("Add", column, b.const("first", np.array([first])), name="later")
    seen = b.op("LessOrEqual", keys, later, name="seen")
    zero, low = (b.const(n, np.float32(x)) for n, x in (("zero", 0), ("low", -np.inf)))
    return b.op("Where", seen, zero, low, name="mask")


def padded(b: Builder) -> ir.Value:
    """The same, and what a caller says is padding."""
    real = b.input("real", BOOL, (1, T))
    seen = b.const("before", np.tri(S, T, dtype=bool))
    both = b.op("And", seen, real, name="both")
    zero, low = (b.const(n, np.float32(x)) for n, x in (("zero", 0), ("low", -np.inf)))
    return b.op("Where", both, zero, low, name="mask")


def triangle(b: Builder) -> ir.Value:
    """Trilu of a constant."""
    return b.op("Trilu", b.const("all", np.full((S, T), -1e9, np.float32)), name="mask",
                upper=1)  # fmt: skip


CASES: dict[str, tuple[Masks | None, dict[str, Any], bool]] = {
    "none": (None, {}, False),
    "none, causal": (None, {"is_causal": 1}, False),
    "some keys": (stored((0, 1), (2, 4)), {}, False),
    "a row": (stored((0, 1), (2, None)), {}, True),
    "a row of bools": (stored((2, None), dtype=BOOL), {}, True),
    "some bools": (stored((2, 1), dtype=BOOL), {}, False),
    "a row of halves": (stored((2, None), dtype=F16), {}, True),
    "a row by -1000": (stored((1, None), by=-1000), {}, True),
    "a row of offsets": (stored((1, None), by=-8), {}, False),
    "the first key, causal": (stored((0, 0)), {"is_causal": 1}, True),
    "the first key": (stored((0, 0)), {}, False),
    "another key, causal": (stored((0, 1)), {"is_causal": 1}, False),
    "a window": (stored((0, 1)), {"left_window_size": 1}, True),
    "causal in the graph": (causal, {}, False),
    "one key late": (lambda b: causal(b, first=-1), {}, True),
    "a triangle": (triangle, {}, True),
    "padding": (padded, {}, True),
    "at run time": (lambda b: b.input("mask", F32, (S, T)), {}, True),
}


def attention(mask: Masks | None, attributes: dict[str, Any]) -> ir.Model:
    b = Builder()
    q, k, v = (b.input(n, F32, (1, 2, rows, 8)) for n, rows in (("q", S), ("k", T), ("v", T)))
    given = [q, k, v] if mask is None else [q, k, v, mask(b)]
    opset = 25 if "left_window_size" in attributes else 23
    y = b.op("Attention", *given, name="y", **attributes)
    return b.model([(y, F32, (1, 2, S, 8))], opset)


@pytest.mark.parametrize("name", CASES)
def test_may_hide_a_row(name: str) -> None:
    mask, attributes, hides = CASES[name]
    model = attention(mask, attributes)
    infer_model(model)
    (node,) = (n for n in model.graph if n.op_type == "Attention")
    assert ("may hide a row" in facts_of(node, model.opset_imports).traits) is hides


@pytest.mark.parametrize("past", [0, 2])
def test_past_rows_are_seen_by_every_query(past: int) -> None:
    b = Builder()
    q, k, v = (b.input(n, F32, (1, 2, S, 8)) for n in "qkv")
    rows = [b.input(n, F32, (1, 2, past, 8)) for n in ("past_key", "past_value")]
    mask = np.zeros((S, S + past), np.float32)
    mask[:, past:] = -np.inf
    names = ["y", "present_key", "present_value"]
    node = b.node("Attention", [q, k, v, b.const("mask", mask), *rows], names, is_causal=1)
    rows_after = (1, 2, S + past, 8)
    shapes = ((1, 2, S, 8), rows_after, rows_after)
    model = b.model([(y, F32, shape) for y, shape in zip(node, shapes, strict=True)], 23)
    facts = facts_of(model.graph[-1], model.opset_imports)
    assert ("may hide a row" in facts.traits) is (past == 0)


@pytest.mark.parametrize("version", ["2.6.0", "2.7.0"])
@pytest.mark.parametrize("name", ["none, causal", "some keys", "causal in the graph", "padding"])
def test_only_an_attention_that_shows_every_row_a_key_stays_on_htp(name: str, version: str) -> None:
    mask, attributes, hides = CASES[name]
    model = attention(mask, attributes)
    report = lower(model, target("qnn", version))
    kept = "Attention" in {n.op_type for n in model.graph}
    assert kept is not hides
    assert [site.rule for site in report.fired] == ["scaled_products"] * hides
