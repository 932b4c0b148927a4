"""PackedAttention and PackedMultiHeadAttention, which only the formula can compute here."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tests.fuzz.case import I32, MS, Arg, Array, Case, Draw, draws


@draws(f"{MS}PackedAttention", f"{MS}PackedMultiHeadAttention")
def packed(d: Draw, op: str) -> Case:
    kind, heads, size = d.kind(), d.integer(1, 3), d.integer(1, 6)
    lengths = [d.integer(1, 4) for _ in range(d.integer(1, 3))]
    batch, longest, tokens = len(lengths), max(lengths) + d.integer(0, 1), sum(lengths)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    valid = [b * longest + i for b, n in enumerate(lengths) for i in range(n)]
    pads = sorted(set(range(batch * longest)) - set(valid))
    q, v = heads * size, heads * d.pick(size, size, d.integer(1, 6))
    widths = (q, q, v)
    weights = op.endswith("PackedAttention")
    inputs: dict[str, Arg | None] = {}
    if weights:
        width = d.integer(1, 6)
        inputs["input"] = d.floats((tokens, width), kind)
        inputs["weights"] = d.floats((width, sum(widths)), kind, const=None)
        inputs["bias"] = d.floats((sum(widths),), kind, const=None)
    else:
        for name, width in zip(("query", "key", "value"), widths, strict=True):
            inputs[name] = d.floats((tokens, width), kind)
        inputs["bias"] = d.floats((sum(widths),), kind, const=None) if d.flag() else None
    offsets = np.array(valid + pads).reshape(batch, longest)
    stored = not d.rarely()
    inputs["token_offset"] = d.given(offsets, I32, const=stored)
    inputs["cumulative_sequence_length"] = d.given(ends, I32, const=stored)
    if d.rarely() or d.rarely():
        shape = (d.pick(1, batch), d.pick(1, heads), longest, longest)
        inputs["attention_bias"] = d.floats(shape, kind)
    said: dict[str, Any] = {"num_heads": heads, **d.attributes(scale=[None, None, 0.3])}
    if weights and (q != v or d.rarely()):
        said["qkv_hidden_sizes"] = widths
    elif not weights:
        said |= d.attributes(mask_filter_value=[None, None, -1e4, -5.0])

    case = Case(op, inputs, [kind], said, d.opset(13, 24), symbolic=d.rarely())
    return replace(case, oracle=lambda: formula(case))


def formula(case: Case) -> list[Array]:
    """Softmax(scale·q·kᵀ + bias)·v of each sequence by itself, in float64."""
    heads = case.attributes["num_heads"]

    def number(name: str) -> Any:
        found = case.inputs.get(name)
        return None if found is None else found.array.astype(np.float64)

    if case.op.endswith("PackedAttention"):
        whole = number("input") @ number("weights") + number("bias")
        widths = case.attributes.get("qkv_hidden_sizes") or [whole.shape[-1] // 3] * 3
    else:
        given = [number(n) for n in ("query", "key", "value")]
        widths = [x.shape[-1] for x in given]
        whole = np.concatenate(given, axis=-1)
        whole = whole + (0 if number("bias") is None else number("bias"))
    parts = np.split(whole, np.cumsum(widths)[:2], axis=-1)
    batch, longest = number("token_offset").shape
    ends, added = number("cumulative_sequence_length").astype(int), number("attention_bias")
    scale = case.attributes.get("scale") or (widths[0] // heads) ** -0.5
    rows = []
    for b, (start, end) in enumerate(pairwise(ends)):
        n = end - start
        q, k, v = (x[start:end].reshape(n, heads, -1).transpose(1, 0, 2) for x in parts)
        scores = q @ k.transpose(0, 2, 1) * scale
        if added is not None:
            scores = scores + np.broadcast_to(added, (batch, heads, longest, longest))[b, :, :n, :n]
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        rows.append((share @ v).transpose(1, 0, 2).reshape(n, -1))
    return [np.concatenate(rows)]
