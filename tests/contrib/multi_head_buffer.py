"""Nodes of MultiHeadAttention over a buffer, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
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
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
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
