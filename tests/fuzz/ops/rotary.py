"""RotaryEmbedding of both domains."""

from __future__ import annotations

import numpy as np

from tests.fuzz.case import I64, MS, Arg, Case, Draw, draws


@draws("RotaryEmbedding", f"{MS}RotaryEmbedding")
def rotary(d: Draw, op: str) -> Case:
    kind = d.kind()
    batch, tokens, heads = d.integer(1, 3), d.integer(1, 5), d.integer(1, 4)
    size = 2 * d.integer(1, 8)
    part = d.pick(0, 0, 2 * d.integer(1, size // 2))
    rank4 = d.flag()
    shape = (batch, heads, tokens, size) if rank4 else (batch, tokens, heads * size)
    width, rows = (part or size) // 2, tokens + d.integer(0, 6)
    contrib = op.startswith(MS)
    said = d.attributes(interleaved=[None, 0, 1])
    if part or d.rarely():
        said["rotary_embedding_dim"] = part
    x = d.floats(shape, kind)
    if contrib:
        if part or (not rank4 and d.flag()) or d.rarely():
            said["num_heads"] = heads
        said |= d.attributes(scale=[None, None, None, 1.0, 0.5], is_packed_batching=[None, None, 0])
        one = d.flag()
        positions = (
            d.integers(0, rows - tokens + 1, (1,), I64, const=None)
            if one
            else d.integers(0, rows, (batch, tokens), I64, const=None)
        )
        inputs: dict[str, Arg | None] = {"input": x, "position_ids": positions}
    else:
        inputs = {"X": x}
        positions = d.integers(0, rows, (batch, tokens), I64, const=None)
        if not rank4 or d.rarely():
            said["num_heads"] = heads
    by_position = contrib or d.flag()
    table = (rows, width) if by_position else (batch, tokens, width)
    angles, stored = d.rng.uniform(-4, 4, table), d.decide(None)
    inputs["cos_cache"] = d.given(np.cos(angles), kind, const=stored)
    inputs["sin_cache"] = d.given(np.sin(angles), kind, const=stored)
    if not contrib and by_position:
        inputs["position_ids"] = positions
    opset = d.opset(13 if contrib else 23, 24)
    return Case(op, inputs, [kind], said, opset, symbolic=d.rarely())
