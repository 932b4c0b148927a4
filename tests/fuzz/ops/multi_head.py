"""MultiHeadAttention, DecoderMaskedMultiHeadAttention and Attention of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.case import I32, MS, Arg, Array, Case, Draw, draws

_LATER = -1.5e4
"""The score of a later key is the lowest float, or about -3e4."""


def _padding(d: Draw, batch: int, tokens: int, keys: int, shapes: tuple[str, ...]) -> Arg:
    sizes = {"B": batch, "S": tokens, "T": keys, "P": 3 * batch + 2, "D": 2 * batch}
    shape = tuple(sizes[letter] for letter in d.pick(*shapes))
    if len(shape) > 1:
        mask = d.rng.integers(0, 2, shape)
        mask[..., 0] = 1
    else:
        mask = d.rng.integers(1, keys + 1, shape)
        if shape[0] == 2 * batch:
            mask[batch:] = d.rng.integers(0, mask[:batch])
    return d.given(mask, I32, const=d.rarely())


def _bias(d: Draw, kind: Any, batch: int, heads: int, tokens: int, keys: int) -> Arg:
    return d.floats((d.pick(1, batch), d.pick(1, heads), tokens, keys), kind, const=d.rarely())


def _said(d: Draw, heads: int) -> dict[str, Any]:
    more = d.attributes(
        scale=[None, None, None, 0.3, 0.0], mask_filter_value=[None, None, None, -1e4, -5.0],
        unidirectional=[None, None, 0, 1],
    )  # fmt: skip
    return {"num_heads": heads, **more}


def _shown(outputs: list[Any], place: int) -> Any:
    def defined(i: int, array: Array) -> Array:
        index = [j for j, kind in enumerate(outputs) if kind is not None][i]
        return np.where(array < _LATER, 0, array) if index == place else array

    return defined


@draws(f"{MS}MultiHeadAttention")
def multi_head(d: Draw, op: str) -> Case:
    kind, batch, tokens, heads = d.kind(), d.integer(1, 3), d.integer(1, 5), d.integer(1, 3)
    size = d.integer(1, 8)
    value_size = d.pick(size, size, d.integer(1, 8))
    layout = d.pick("apart", "apart", "apart", "split", "packed kv", "packed qkv")
    new = d.pick(tokens, tokens, d.integer(1, 5))
    inputs: dict[str, Arg | None] = {}
    if layout == "packed qkv":
        new, value_size = tokens, size
        inputs["query"] = d.floats((batch, tokens, heads, 3, size), kind)
        inputs |= {"key": None, "value": None}
    else:
        inputs["query"] = d.floats((batch, tokens, heads * size), kind)
        if layout == "apart":
            inputs["key"] = d.floats((batch, new, heads * size), kind)
            inputs["value"] = d.floats((batch, new, heads * value_size), kind)
        elif layout == "split":
            inputs["key"] = d.floats((batch, heads, new, size), kind)
            inputs["value"] = d.floats((batch, heads, new, value_size), kind)
        else:
            value_size = size
            inputs["key"] = d.floats((batch, new, heads, 2, size), kind)
            inputs["value"] = None
    inputs["bias"] = (
        d.floats((heads * (2 * size + value_size),), kind, const=None) if d.flag() else None
    )
    past = d.integer(1, 4) if layout == "apart" and d.flag() else 0
    buffer = past > 0 and d.rarely()
    keys = past + new
    inputs["key_padding_mask"] = (
        _padding(d, batch, tokens, keys, ("BT", "B", "BST", "P")) if d.rarely() else None
    )
    inputs["attention_bias"] = (
        _bias(d, kind, batch, heads, tokens, keys) if d.rarely() or d.rarely() else None
    )
    if past:
        rows = keys + d.integer(0, 2) if buffer else past
        inputs["past_key"] = d.floats((batch, heads, rows, size), kind)
        inputs["past_value"] = d.floats((batch, heads, rows, value_size), kind)
        if buffer:
            inputs["past_sequence_length"] = d.given([past], I32, const=None)
    outputs: list[Any] = [kind]
    if past or d.rarely():
        outputs += [kind, kind]
        outputs += [kind] if d.rarely() else []
    said = _said(d, heads)
    defined = _shown(outputs, 3)
    return Case(op, _trimmed(inputs), outputs, said, d.opset(13, 24), defined, symbolic=d.rarely())


@draws(f"{MS}Attention")
def packed_weights(d: Draw, op: str) -> Case:
    kind, batch, tokens, heads = d.kind(), d.integer(1, 3), d.integer(1, 5), d.integer(1, 3)
    size, width = d.integer(1, 6), d.integer(1, 7)
    value = heads * d.pick(size, size, d.integer(1, 6))
    sizes = (heads * size, heads * size, value)
    past = d.integer(1, 4) if value == sizes[0] and d.rarely() else 0
    keys = past + tokens
    inputs: dict[str, Arg | None] = {
        "input": d.floats((batch, tokens, width), kind),
        "weights": d.floats((width, sum(sizes)), kind, const=None),
        "bias": d.floats((sum(sizes),), kind, const=None) if not d.rarely() else None,
        "mask_index": _padding(d, batch, tokens, keys, ("BT", "B", "BST", "D", "P"))
        if d.flag()
        else None,
        "past": d.floats((2, batch, heads, past, size), kind) if past else None,
        "attention_bias": _bias(d, kind, batch, heads, tokens, keys) if d.rarely() else None,
    }
    said = _said(d, heads)
    if len(set(sizes)) > 1 or d.rarely():
        said["qkv_hidden_sizes"] = sizes
    if d.rarely():
        said |= d.attributes(do_rotary=[None, 0, 1], past_present_share_buffer=[None, 0])
    outputs = [kind, kind] if past or (value == sizes[0] and d.rarely()) else [kind]
    return Case(op, _trimmed(inputs), outputs, said, d.opset(13, 24), symbolic=d.rarely())


@draws(f"{MS}DecoderMaskedMultiHeadAttention")
def one_token(d: Draw, op: str) -> Case:
    kind, batch, heads, size = d.kind(), d.integer(1, 4), d.integer(1, 3), d.integer(1, 8)
    width, past, across = heads * size, d.integer(0, 4), d.rarely()
    capacity, other = past + 1 + d.integer(0, 3), d.integer(1, 4)
    keys = other if across else past + 1
    new = (batch, heads, other, size) if across else (batch, 1, width)
    inputs: dict[str, Arg | None] = {"query": d.floats((batch, 1, width), kind)}
    inputs |= {name: d.floats(new, kind) for name in ("key", "value")}
    inputs["mask_index"] = _padding(d, batch, 1, keys, ("BT",)) if d.flag() else None
    inputs["attention_bias"] = _bias(d, kind, batch, heads, 1, keys) if d.rarely() else None
    if not across:
        for name in ("past_key", "past_value"):
            inputs[name] = d.floats((batch, heads, capacity, size), kind)
        inputs["past_sequence_length"] = d.given([past], I32, const=None)
        beams = batch if d.rarely() else 0
        if beams:
            inputs["beam_width"] = d.given([beams], I32, const=True)
            shape = (batch // beams, beams, capacity)
            inputs["cache_indirection"] = d.integers(0, beams, shape, I32)
    if d.rarely():
        for name in ("past_key", "past_value", "past_sequence_length"):
            inputs.setdefault(name, None)
        inputs.setdefault("beam_width", None)
        inputs.setdefault("cache_indirection", None)
        inputs["bias"] = d.floats((3 * width,), kind, const=None)
    said = _said(d, heads)
    said.pop("unidirectional", None)
    outputs: list[Any] = [kind]
    if not across:
        said["past_present_share_buffer"] = 1
        outputs += [kind, kind]
        if d.rarely():
            said["output_qk"] = 1
            outputs.append(kind)

    def defined(i: int, array: Array) -> Array:
        y = array.copy()
        if i in {1, 2}:
            y[:, :, past + 1 :] = 0
        return y

    return Case(op, _trimmed(inputs), outputs, said, d.opset(13, 24), defined, symbolic=d.rarely())


def _trimmed(inputs: dict[str, Arg | None]) -> dict[str, Arg | None]:
    names = list(inputs)
    while inputs[names[-1]] is None:
        names.pop()
    return {name: inputs[name] for name in names}
