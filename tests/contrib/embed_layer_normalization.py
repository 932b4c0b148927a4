"""Nodes of EmbedLayerNormalization, and what to feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
BATCH, TOKENS, WIDTH = 2, 3, 16
ROWS = {"word_embedding": 11, "position_embedding": 8, "segment_embedding": 2}


@dataclass(frozen=True)
class Case:
    """One node, and what it is given."""

    name: str
    segments: bool = True
    mask: bool = False
    positions: int = 0
    outputs: tuple[str, ...] = ("y", "mask_index")
    epsilon: float | None = None
    kind: int | None = None
    dtype: ir.DataType = F32


def node(case: Case) -> ir.Model:
    b = Builder()
    kind, ids = case.dtype.numpy(), (BATCH, TOKENS)
    tables = {
        name: b.const(name, b.rng.standard_normal((rows, WIDTH)).astype(kind))
        for name, rows in ROWS.items()
    }
    gamma, beta = (b.const(n, b.rng.standard_normal(WIDTH).astype(kind)) for n in ("g", "b"))
    inputs: list[ir.Value | None] = [
        b.input("input_ids", I32, ids),
        b.input("segment_ids", I32, ids) if case.segments else None,
        tables["word_embedding"],
        tables["position_embedding"],
        tables["segment_embedding"] if case.segments else None,
        gamma,
        beta,
        b.input("mask", I32, ids) if case.mask else None,
        b.input("position_ids", I32, (case.positions, TOKENS)) if case.positions else None,
    ]
    said: dict[str, Any] = {"epsilon": case.epsilon, "mask_index_type": case.kind}
    found = b.node(
        "com.microsoft::EmbedLayerNormalization",
        inputs,
        case.outputs,
        **{k: v for k, v in said.items() if v is not None},
    )
    full = (BATCH, TOKENS, WIDTH)
    described = zip(found, (case.dtype, I32, case.dtype), (full, (BATCH,), full), strict=False)
    return b.model([o for o in described if o[0].name])


def feeds(case: Case) -> ort.Arrays:
    rng = np.random.default_rng(1)

    def integers(limit: int, shape: tuple[int, ...] = (BATCH, TOKENS)) -> np.ndarray:
        return rng.integers(0, limit, shape).astype(np.int32)

    return {
        "input_ids": integers(ROWS["word_embedding"]),
        "segment_ids": integers(2),
        "mask": np.array([[1, 1, 0], [2, 1, 3]], np.int32),
        "position_ids": integers(ROWS["position_embedding"], (case.positions or 1, TOKENS)),
    }


ALL = ("y", "mask_index", "sum")
CASES = [
    Case("one output", outputs=("y",), kind=0),
    Case("no mask"),
    Case("mask", mask=True),
    Case("mask, type 1", mask=True, kind=1),
    Case("mask, type 2", mask=True, kind=2, outputs=ALL),
    Case("sum alone", outputs=("y", "", "sum")),
    Case("no segments", segments=False, mask=True),
    Case("positions", positions=BATCH, mask=True),
    Case("positions for all", positions=1, mask=True),
    Case("epsilon", epsilon=0.5, mask=True),
    Case("all", mask=True, positions=BATCH, outputs=ALL),
]
