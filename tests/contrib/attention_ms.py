"""Nodes of com.microsoft Attention, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
INPUTS = (
    "input", "weights", "bias", "mask_index", "past", "attention_bias", "past_sequence_length"
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One node; ``mask`` is the shape of its mask_index, in letters or numbers."""

    name: str
    batch: int = 2
    tokens: int = 4
    past: int = 0
    heads: int = 2
    width: int = 12
    sizes: tuple[int, int, int] = (16, 16, 16)
    bias: bool = True
    mask: tuple[str | int, ...] = ()
    added: tuple[int, ...] = ()
    present: bool = False
    causal: bool = False
    scale: float | None = None
    filter: float | None = None
    dtype: ir.DataType = F32

    @property
    def shape_of_mask(self) -> tuple[int, ...]:
        sizes = {"B": self.batch, "2B": 2 * self.batch, "3B+2": 3 * self.batch + 2,
                 "S": self.tokens, "T": self.past + self.tokens}  # fmt: skip
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.mask)


def node(case: Case, extra: dict[str, tuple[int, ...]] | None = None, **more: Any) -> ir.Model:
    b = Builder()
    size, kind = case.sizes[0] // case.heads, case.dtype.numpy()
    weights = b.rng.standard_normal((case.width, sum(case.sizes))) / np.sqrt(case.width)
    given: dict[str, ir.Value] = {
        "input": b.input("input", case.dtype, (case.batch, case.tokens, case.width)),
        "weights": b.const("weights", weights.astype(kind)),
    }
    if case.bias:
        bias = b.rng.standard_normal(sum(case.sizes)).astype(kind)
        given["bias"] = b.const("bias", bias)
    if case.mask:
        given["mask_index"] = b.input("mask_index", I32, case.shape_of_mask)
    cache = (2, case.batch, case.heads, case.past, size)
    if case.past:
        given["past"] = b.input("past", case.dtype, cache)
    if case.added:
        given["attention_bias"] = b.input("attention_bias", case.dtype, case.added)
    for name, shape in (extra or {}).items():
        given[name] = b.input(name, I32, shape)
    inputs = [given.get(name) for name in INPUTS]
    while inputs[-1] is None:
        inputs.pop()
    said: dict[str, Any] = {"scale": case.scale, "mask_filter_value": case.filter}
    said["unidirectional"] = 1 if case.causal else None
    said["qkv_hidden_sizes"] = None if len(set(case.sizes)) == 1 else case.sizes
    found = b.node(
        "com.microsoft::Attention",
        inputs,
        ["y", "present"][: 1 + case.present],
        num_heads=case.heads,
        **{k: v for k, v in {**said, **more}.items() if v is not None},
    )
    present = (*cache[:3], case.past + case.tokens, size)
    full = [(case.batch, case.tokens, case.sizes[2]), present]
    return b.model([(v, case.dtype, s) for v, s in zip(found, full, strict=False)])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    """Random inputs; masks leave the first key of the first token of every sequence."""
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
        found[value.name or ""] = rng.standard_normal(shape).astype(case.dtype.numpy())
    if case.mask:
        keys, shape = case.past + case.tokens, case.shape_of_mask
        mask = rng.integers(0, 2, shape) if len(shape) > 1 else rng.integers(1, keys + 1, shape)
        if len(shape) > 1:
            mask[..., 0] = 1
        if case.mask == ("2B",):
            mask[case.batch :] = rng.integers(0, mask[: case.batch])
        found["mask_index"] = mask.astype(np.int32)
    return found


LOWEST = float(np.finfo(np.float32).min)
CASES = [
    Case("plain"),
    Case("no bias", bias=False),
    Case("one token", tokens=1),
    Case("values of another width", sizes=(16, 16, 24)),
    Case("scale", scale=0.3),
    Case("causal", causal=True),
    Case("ends", mask=("B",)),
    Case("ends and starts", mask=("2B",)),
    Case("ends and starts, causal", mask=("2B",), causal=True),
    Case("lengths of packed sequences", mask=("3B+2",)),
    Case("flags", mask=("B", "T")),
    Case("flags of each token", mask=("B", "S", "T")),
    Case("flags, causal", mask=("B", "T"), causal=True),
    Case("a flag a sequence", mask=("B", 1)),
    Case("one flag", mask=(1, 1)),
    Case("another filter value", mask=("B", "T"), filter=-2.0),
    Case("lowest filter value", mask=("B", "T"), filter=LOWEST),
    Case("attention bias", added=(2, 2, 4, 4)),
    Case("attention bias for all", added=(1, 1, 4, 4)),
    Case("attention bias a head, mask", added=(1, 2, 4, 4), mask=("B", "T")),
    Case("present", present=True),
    Case("past", past=3, present=True),
    Case("past, one token", past=3, present=True, tokens=1),
    Case("past, causal", past=3, present=True, causal=True),
    Case("past, ends", past=3, present=True, mask=("B",)),
    Case("past, flags", past=3, present=True, mask=("B", "T")),
    Case("past, flags of each token", past=3, present=True, mask=("B", "S", "T"), causal=True),
]
