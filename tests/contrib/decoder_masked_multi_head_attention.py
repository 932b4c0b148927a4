"""Nodes of DecoderMaskedMultiHeadAttention, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
HEADS, SIZE, CAPACITY, OTHER = 2, 8, 12, 5
WIDTH = HEADS * SIZE
INPUTS = (
    "query", "key", "value", "mask_index", "attention_bias", "past_key", "past_value",
    "past_sequence_length", "beam_width", "cache_indirection", "bias",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One token at row ``start`` of a buffer, or over another sequence."""

    name: str
    start: int = 5
    batch: int = 2
    across: bool = False
    mask: bool = False
    added: tuple[int, ...] = ()
    bias: bool = False
    beams: int = 0
    scale: float | None = None
    filter: float | None = None
    stored: bool = False
    shown: bool = False
    tokens: int = 1

    @property
    def total(self) -> int:
        return OTHER if self.across else self.start + 1


def node(case: Case, **more: Any) -> ir.Model:
    b = Builder()
    batch, cache = case.batch, (case.batch, HEADS, CAPACITY, SIZE)
    new = (batch, HEADS, OTHER, SIZE) if case.across else (batch, case.tokens, WIDTH)
    given = {"query": b.input("query", F32, (batch, case.tokens, WIDTH))}
    given |= {name: b.input(name, F32, new) for name in ("key", "value")}
    if not case.across:
        given |= {name: b.input(name, F32, cache) for name in ("past_key", "past_value")}
        at = np.array([case.start], np.int32)
        name = "past_sequence_length"
        given[name] = b.const(name, at) if case.stored else b.input(name, I32, (1,))
    if case.mask:
        given["mask_index"] = b.input("mask_index", I32, (batch, case.total))
    if case.added:
        given["attention_bias"] = b.input("attention_bias", F32, case.added)
    if case.bias:
        given["bias"] = b.const("bias", b.rng.standard_normal(3 * WIDTH).astype(np.float32))
    if case.beams:
        shape = (batch // case.beams, case.beams, CAPACITY)
        given["beam_width"] = b.const("beam_width", np.array([case.beams], np.int32))
        given["cache_indirection"] = b.input("cache_indirection", I32, shape)
    said: dict[str, Any] = {"scale": case.scale, "mask_filter_value": case.filter}
    said |= {"past_present_share_buffer": None if case.across else 1}
    said |= {"output_qk": 1 if case.shown else None, **more}
    names = ["y"] if case.across else ["y", "present_key", "present_value"] + ["qk"] * case.shown
    found = b.node(
        "com.microsoft::DecoderMaskedMultiHeadAttention",
        [given.get(name) for name in INPUTS],
        names,
        num_heads=HEADS,
        **{k: v for k, v in said.items() if v is not None},
    )
    full = [(batch, case.tokens, WIDTH), cache, cache, (batch, HEADS, 1, case.total)]
    return b.model([(v, F32, s) for v, s in zip(found, full, strict=False)])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
        found[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    for name in {"past_key", "past_value"} & set(found):
        found[name][:, :, case.start :] = 2.0
    found["past_sequence_length"] = np.array([case.start], np.int32)
    found["cache_indirection"] = np.zeros((case.batch, 1, CAPACITY), np.int32)
    if case.mask:
        mask = rng.integers(0, 2, (case.batch, case.total))
        mask[:, 0] = 1
        found["mask_index"] = mask.astype(np.int32)
    return found


CASES = [
    Case("decode"),
    Case("first token", start=0),
    Case("last row", start=CAPACITY - 1),
    Case("start is stored", stored=True),
    Case("mask", mask=True),
    Case("another filter value", mask=True, filter=-1.5),
    Case("attention bias", added=(2, 2, 1, 6)),
    Case("attention bias for all", added=(1, 1, 1, 6), mask=True),
    Case("bias", bias=True),
    Case("scale", scale=0.2),
    Case("one beam", beams=1),
    Case("scores", stored=True, shown=True),
    Case("scores, mask", mask=True, shown=True),
    Case("across", across=True),
    Case("across, bias", across=True, bias=True),
    Case("across, mask", across=True, mask=True),
]
