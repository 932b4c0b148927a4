"""Nodes of PackedMultiHeadAttention and PackedAttention, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
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
        shape = tuple(value.shape.numpy())  # type: ignore[union-attr]  # inputs have shapes
        found[value.name or ""] = rng.standard_normal(shape).astype(np.float32)
    return found | {"offsets": OFFSETS, "ends": ENDS}


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
