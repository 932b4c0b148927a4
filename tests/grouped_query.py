"""A GroupQueryAttention of any form, and inputs for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tests import ort
from tests.graphs import Builder

F32, I32 = ir.DataType.FLOAT, ir.DataType.INT32
OPTIONAL = (
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight",
    "k_norm_weight", "query_seqlens",
)  # fmt: skip
"""Inputs from the tenth on."""


@dataclass(frozen=True)
class Case:
    """One node: sizes, layout of its cache, and which optional things it has."""

    name: str
    tokens: int = 1
    capacity: int = 8
    total: int = 9
    valid: tuple[int, ...] = (9,)
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    packed: bool = True
    rotary: bool = True
    rotary_part: int = 16
    window: int = -1
    scale: float | None = None
    past: bool = True
    positions: int = 128

    @property
    def present(self) -> int:
        return max(self.capacity, self.total)


def node(
    case: Case,
    dtype: ir.DataType = F32,
    extra: dict[str, tuple[ir.DataType, tuple[int, ...]]] | None = None,
    **more: object,
) -> ir.Model:
    """The node alone; ``extra`` are optional inputs by name, with type and shape.

    With ``total_sequence_length`` among them it is an input too, not a constant.
    """
    b = Builder()
    batch, query, cache = len(case.valid), case.heads * case.size, case.kv_heads * case.size
    kind = dtype.numpy()
    widths = [query + 2 * cache] if case.packed else [query, cache, cache]
    qkv: list[ir.Value | None] = [
        b.input(f"qkv{i}", dtype, (batch, case.tokens, width)) for i, width in enumerate(widths)
    ]
    shape = (batch, case.kv_heads, case.capacity, case.size)
    past = [b.input(n, dtype, shape) if case.past else None for n in ("past_key", "past_value")]
    lengths = b.input("seqlens_k", I32, (batch,))
    if extra and "total_sequence_length" in extra:
        total = b.input("total_sequence_length", *extra["total_sequence_length"])
    else:
        total = b.const("total", np.array(case.total, np.int32))
    tables: list[ir.Value | None] = [None, None]
    if case.rotary:
        rates = 10000.0 ** -(np.arange(0, case.rotary_part, 2) / case.rotary_part)
        angles = np.outer(np.arange(case.positions), rates)
        tables = [b.const("cos", np.cos(angles).astype(kind)),
                  b.const("sin", np.sin(angles).astype(kind))]  # fmt: skip
    named = {name: kind for name, kind in (extra or {}).items() if name in OPTIONAL}
    given = {name: b.input(name, *kind) for name, kind in named.items()}
    optional = [*tables, *(given.get(name) for name in OPTIONAL)]
    while optional and optional[-1] is None:
        optional.pop()
    outputs = ["y", "present_key", "present_value"] + ["qk"] * bool(more.get("qk_output"))
    y, key, value, *shown = b.node(
        "com.microsoft::GroupQueryAttention",
        [*qkv, *[None] * (3 - len(qkv)), *past, lengths, total, *optional],
        outputs,
        num_heads=case.heads,
        kv_num_heads=case.kv_heads,
        do_rotary=int(case.rotary),
        local_window_size=case.window,
        **({} if case.scale is None else {"scale": case.scale}),
        **more,
    )
    rows = case.capacity if more.get("sliding_window_cache") else case.present
    present = (batch, case.kv_heads, rows, case.size)
    scores = (batch, case.heads, case.tokens, case.total)
    return b.model([
        (y, dtype, (batch, case.tokens, query)), (key, dtype, present), (value, dtype, present),
        *((qk, dtype, scores) for qk in shown),
    ])  # fmt: skip


def feeds(model: ir.Model, case: Case, seed: int = 0) -> ort.Arrays:
    """Random inputs; rows of the cache that are not valid hold rubbish."""
    rng = np.random.default_rng(seed)
    found: ort.Arrays = {}
    for value in model.graph.inputs:
        assert value.name is not None
        assert value.shape is not None
        assert value.dtype is not None
        shape = tuple(value.shape.numpy())
        found[value.name] = rng.standard_normal(shape).astype(value.dtype.numpy())
    found["seqlens_k"] = np.array(case.valid, np.int32) - 1
    if "total_sequence_length" in found:
        found["total_sequence_length"] = np.array(case.total, np.int32)
    for name in ("past_key", "past_value"):
        if name in found:
            for batch, valid in enumerate(case.valid):
                found[name][batch, :, max(valid - case.tokens, 0) :] = 100.0
    return found
