"""Nodes of MultiHeadAttention, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32


@dataclass(frozen=True)
class Case:
    """One node; ``mask`` is the shape of its key_padding_mask, in letters B, S, T."""

    name: str
    batch: int = 2
    tokens: int = 4
    new: int = 4
    past: int = 0
    heads: int = 3
    size: int = 8
    value_size: int = 8
    split: bool = False
    bias: bool = False
    mask: str = ""
    added: tuple[int, ...] = ()
    outputs: int = 1
    causal: bool = False
    scale: float | None = None
    filter: float | None = None
    dtype: ir.DataType = F32

    @property
    def keys(self) -> int:
        return self.past + self.new


def node(case: Case, **more: Any) -> ir.Model:
    b = Builder()
    shapes: dict[str, tuple[int, ...]] = {
        "query": (case.batch, case.tokens, case.heads * case.size),
        "key": (case.batch, case.new, case.heads * case.size),
        "value": (case.batch, case.new, case.heads * case.value_size),
    }
    if case.split:
        shapes["key"] = (case.batch, case.heads, case.new, case.size)
        shapes["value"] = (case.batch, case.heads, case.new, case.value_size)
    inputs: list[ir.Value | None] = [b.input(n, case.dtype, s) for n, s in shapes.items()]
    width = case.heads * (2 * case.size + case.value_size)
    bias = b.rng.standard_normal(width).astype(case.dtype.numpy())
    inputs.append(b.const("bias", bias) if case.bias else None)
    sizes = {"B": case.batch, "S": case.tokens, "T": case.keys, "P": 3 * case.batch + 2}
    mask = tuple(sizes[letter] for letter in case.mask)
    inputs.append(b.input("mask", I32, mask) if mask else None)
    inputs.append(b.input("added", case.dtype, case.added) if case.added else None)
    for name, size in (("past_key", case.size), ("past_value", case.value_size)):
        shape = (case.batch, case.heads, case.past, size)
        inputs.append(b.input(name, case.dtype, shape) if case.past else None)
    while inputs[-1] is None:
        inputs.pop()
    said = {
        "unidirectional": 1 if case.causal else None,
        "scale": case.scale,
        "mask_filter_value": case.filter,
        **more,
    }
    found = b.node(
        "com.microsoft::MultiHeadAttention",
        inputs,
        ["y", "present_key", "present_value", "qk"][: case.outputs],
        num_heads=case.heads,
        **{k: v for k, v in said.items() if v is not None},
    )
    rows = [(case.batch, case.heads, case.keys, s) for s in (case.size, case.value_size)]
    full = [(case.batch, case.tokens, case.heads * case.value_size), *rows]
    full.append((case.batch, case.heads, case.tokens, case.keys))
    return b.model([(v, case.dtype, s) for v, s in zip(found, full, strict=False)])


def feeds(model: ir.Model, case: Case) -> ort.Arrays:
    rng = np.random.default_rng(1)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
        if value.name == "mask":
            found["mask"] = rng.integers(0, 2, shape).astype(np.int32)
            if len(case.mask) == 1:
                found["mask"] = rng.integers(1, case.keys + 1, shape).astype(np.int32)
            else:
                found["mask"][..., 0] = 1
        else:
            found[value.name or ""] = rng.standard_normal(shape).astype(case.dtype.numpy())
    return found


CASES = [
    Case("plain"),
    Case("one token", tokens=1, new=1),
    Case("across", tokens=3, new=5),
    Case("across, split into heads", tokens=3, new=5, split=True),
    Case("values of another width", value_size=16),
    Case("bias", bias=True, value_size=16),
    Case("scale", scale=0.5),
    Case("causal", causal=True),
    Case("bias of the query alone, keys of another sequence", new=5, split=True, bias=True),
    Case("past, keys of another sequence", new=5, past=2, split=True, outputs=3),
    Case("lengths", mask="B"),
    Case("lengths of packed sequences", mask="P"),
    Case("padding", mask="BT"),
    Case("padding of each token", mask="BST"),
    Case("padding and causal", mask="BT", causal=True),
    Case("padding and causal, another filter", mask="BT", causal=True, filter=-1000.0),
    Case("padding and causal, the lowest filter", mask="BT", causal=True,
         filter=float(np.finfo(np.float32).min)),
    Case("another filter value", mask="BT", filter=-1000.0),
    Case("lowest filter value", mask="BT", filter=float(np.finfo(np.float32).min)),
    Case("attention bias", added=(2, 3, 4, 4)),
    Case("attention bias for all heads", added=(1, 1, 4, 4)),
    Case("attention bias and padding", added=(1, 3, 4, 4), mask="BT"),
    Case("presents", outputs=3),
    Case("past", past=5, outputs=3, tokens=1, new=1),
    Case("past, chunk, causal", past=5, outputs=3, causal=True),
    Case("past, chunk, padding", past=5, outputs=3, mask="BT"),
    Case("past, chunk, bias of both kinds", past=5, outputs=3, bias=True, added=(1, 1, 4, 9)),
    Case("scores", outputs=4),
    Case("scores, padding and bias", outputs=4, mask="BT", added=(1, 1, 4, 4)),
    Case("scores, past", outputs=4, past=5, mask="BT"),
]  # fmt: skip
