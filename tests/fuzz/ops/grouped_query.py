"""GroupQueryAttention: prompts, single tokens, chunks; caches that grow, have room, or slide."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.case import I32, I64, MS, Arg, Array, Case, Draw, draws


@draws(f"{MS}GroupQueryAttention")
def grouped_query(d: Draw, op: str) -> Case:  # ruff: ignore[complex-structure] - one choice after the other
    kind = d.kind()
    groups, kv_heads, size = d.pick(1, 2, 3), d.pick(1, 2), d.pick(8, 16)
    heads, batch = groups * kv_heads, d.pick(1, 1, 2, 3)
    mode = d.pick("prompt", "token", "chunk", "padded chunk", "sliding")
    tokens = 1 if mode == "token" else d.integer(1, 5)
    before = 0 if mode == "prompt" else d.integer(0, 5)
    if mode == "chunk":
        batch = d.pick(1, 1, 1, batch)
    lengths = np.full(batch, before + tokens)
    counts = np.full(batch, tokens)
    if batch > 1 and mode in {"prompt", "token"}:
        lengths = d.rng.integers(tokens if mode == "token" else 1, before + tokens + 1, batch)
        lengths[0] = before + tokens
    if mode == "padded chunk":
        counts = d.rng.integers(1, tokens + 1, batch)
        lengths = d.rng.integers(counts, before + tokens + 1, batch)
    total = before + tokens
    if mode == "prompt":
        capacity = d.pick(0, 0, total + d.integer(0, 4))
    else:
        capacity = d.pick(before, total + d.integer(0, 4)) or total
    if mode == "padded chunk":
        capacity = total + tokens
    window = d.pick(-1, -1, 1, 2, 3)
    said: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv_heads}
    if mode == "sliding":
        window = max(window, 1)
        capacity = window + d.integer(0, 3)
        said["sliding_window_cache"] = 1
    if window != -1 or d.rarely():
        said["local_window_size"] = window
    said |= d.attributes(
        scale=[None, None, 0.3], softcap=[None, None, 0.0, 1.5], smooth_softmax=[None, None, 0, 1]
    )
    if d.rarely():
        said["causal"] = d.pick(0, 1)
    packed = d.flag()
    q, kv = heads * size, kv_heads * size
    inputs: dict[str, Arg | None] = {
        "query": d.floats((batch, tokens, q + 2 * kv if packed else q), kind),
        "key": None if packed else d.floats((batch, tokens, kv), kind),
        "value": None if packed else d.floats((batch, tokens, kv), kind),
        "past_key": None,
        "past_value": None,
    }
    if capacity or mode != "prompt":
        for name in ("past_key", "past_value"):
            past = d.floats((batch, kv_heads, capacity, size), kind).array
            for b in range(batch if mode not in {"sliding", "padded chunk"} else 0):
                past[b, :, max(int(lengths[b] - counts[b]), 0) :] = 50  # rubbish
            inputs[name] = d.given(past, kind)
    inputs["seqlens_k"] = d.given(lengths - 1, I32, const=d.rarely())
    shape: Any = total if d.flag() else [total]
    inputs["total_sequence_length"] = d.given(shape, I32, const=not d.rarely())
    _rotation(d, inputs, said, kind, batch, tokens, size, total)
    if d.rarely() or d.rarely():
        bias = (d.pick(1, batch), d.pick(1, heads), tokens, total)
        inputs["attention_bias"] = d.floats(bias, kind)
    if d.rarely():
        inputs["head_sink"] = d.floats((heads,), kind, const=None)
    if mode == "padded chunk":
        inputs["query_seqlens"] = d.given(counts, I32)
    order = (
        *("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"),
        *("cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink", "k_scale"),
        *("v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens"),
    )
    last = max(i for i, name in enumerate(order) if inputs.get(name) is not None)
    outputs = [kind, kind, kind]
    if d.rarely():
        said["qk_output"] = d.pick(1, 2)
        outputs.append(kind)
    valid = counts if mode == "padded chunk" else np.minimum(lengths, tokens)
    rows = lengths
    if mode == "sliding":  # a full buffer makes room for as many rows as it has beside a window
        step = capacity - window + 1
        rows = lengths - step * -(-np.maximum(lengths - capacity, 0) // step)

    def defined(i: int, array: Array) -> Array:
        y = array.copy()
        for b in range(batch):
            if i == 0:
                y[b, valid[b] :] = 0
            elif i == 3:
                y[b, :, valid[b] :] = 0
            else:
                y[b, :, rows[b] :] = 0
        return y

    return Case(
        op, {name: inputs.get(name) for name in order[: last + 1]}, outputs, said, d.opset(13, 24),
        defined=defined, symbolic=d.rarely(),
    )  # fmt: skip


def _rotation(
    d: Draw, inputs: dict[str, Arg | None], said: dict[str, Any], kind: Any, batch: int,
    tokens: int, size: int, total: int,
) -> None:  # fmt: skip
    if not d.flag():
        return
    said["do_rotary"] = 1
    said |= d.attributes(rotary_interleaved=[None, 0, 1])
    width = d.pick(size // 2, size // 2, 8) if size > 8 else size // 2
    rows = total + tokens + d.integer(0, 3)
    angles, stored = d.rng.uniform(-4, 4, (rows, width)), d.decide(None)
    inputs["cos_cache"] = d.given(np.cos(angles), kind, const=stored)
    inputs["sin_cache"] = d.given(np.sin(angles), kind, const=stored)
    if d.rarely():
        inputs["position_ids"] = d.integers(0, rows, (batch, tokens), I64)
