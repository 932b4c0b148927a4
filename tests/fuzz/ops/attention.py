"""Attention of ai.onnx 23 and 24."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.case import BOOL, I64, Arg, Array, Case, Draw, draws


@draws("Attention")
def attention(d: Draw, op: str) -> Case:
    kind, opset = d.kind(), d.pick(23, 24, 24, 25)
    batch, tokens, new = d.integer(1, 3), d.integer(1, 5), d.integer(1, 6)
    kv_heads, groups, size = d.integer(1, 3), d.pick(1, 1, 2, 3), d.integer(1, 6)
    value_size = d.pick(size, size, d.integer(1, 6))
    heads, rank3 = kv_heads * groups, d.flag()
    said: dict[str, Any] = {}
    if rank3 or d.rarely():
        said |= {"q_num_heads": heads, "kv_num_heads": kv_heads}

    def given(count: int, length: int, width: int) -> Arg:
        shape = (batch, length, count * width) if rank3 else (batch, count, length, width)
        return d.floats(shape, kind)

    inputs: dict[str, Arg | None] = {
        "Q": given(heads, tokens, size),
        "K": given(kv_heads, new, size),
        "V": given(kv_heads, new, value_size),
    }
    past = d.pick(None, None, 0, d.integer(1, 4))
    if past and tokens == 1:
        new = 1  # of more new keys ONNX Runtime shows one query all, causal or not
        inputs["K"], inputs["V"] = given(kv_heads, new, size), given(kv_heads, new, value_size)
    nonpad = opset >= 24 and past is None and d.flag()
    total = new + (past or 0)
    hidden = False
    if d.flag():
        shape = _mask_shape(d, batch, heads, tokens, total)
        hidden = d.flag()
        mask = d.rng.random(shape) < 0.7
        mask[..., 0] = True
        inputs["attn_mask"] = (
            d.given(mask, BOOL, const=None)
            if hidden
            else d.given(
                np.where(mask, d.rng.standard_normal(shape), d.pick(-1e4, -np.inf, 0.0)), kind,
                const=None,
            )
        )  # fmt: skip
    if past is not None:
        inputs.setdefault("attn_mask", None)
        inputs["past_key"] = d.floats((batch, kv_heads, past, size), kind)
        inputs["past_value"] = d.floats((batch, kv_heads, past, value_size), kind)
    if nonpad:
        for name in ("attn_mask", "past_key", "past_value"):
            inputs.setdefault(name, None)
        low = d.pick(1, min(tokens, new))
        inputs["nonpad_kv_seqlen"] = d.integers(low, new + 1, (batch,), I64, const=None)
    said |= d.attributes(
        scale=[None, None, 0.3, 1.0], softcap=[None, None, 0.0, 1.5], is_causal=[None, 0, 1],
        softmax_precision=[None, None, None, None, 1, 10, 11],
    )  # fmt: skip
    if opset >= 25 and d.flag():
        said |= d.attributes(left_window_size=[None, -1, 0, 2], right_window_size=[None, -1, 0, 1])
    outputs: list[Any] = [kind]
    if past is not None or d.rarely():
        outputs += [kind, kind]
    if d.rarely():
        outputs += [None, None] if len(outputs) == 1 else []
        outputs.append(kind)
        said["qk_matmul_output_mode"] = d.pick(0, 1, 2, 3)

    def defined(i: int, array: Array) -> Array:
        """The score of a hidden key may be -inf or anything low."""
        last = [j for j, k in enumerate(outputs) if k is not None][-1]
        shown = i == last and len(outputs) == 4
        return np.where(array < -5e3, 0, array) if shown else array

    return Case(op, inputs, outputs, said, opset, defined=defined, symbolic=d.rarely())


def _mask_shape(d: Draw, batch: int, heads: int, tokens: int, total: int) -> tuple[int, ...]:
    rank = d.integer(1, 4) if d.rarely() else d.integer(2, 4)
    whole = (d.pick(1, batch), d.pick(1, heads), d.pick(tokens, tokens, 1), total)
    if d.rarely() and total > 1:
        whole = (*whole[:-1], total - 1)
    return whole[4 - rank :]
