"""What the inputs of an op may be, and which rows of its outputs it defines.

Sites of ops that are not listed get random inputs, and all their outputs are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rewriter.rules.parts.window_cache import kept

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Domain:
    """Legal inputs and defined outputs of one op.

    Attributes:
        draw: values of the inputs that are not free, by the schema's name, for one of several
            seeds; given the shapes of all inputs and the arrays that are known: small constants,
            integer attributes, and what was drawn at random for the others.
        defined: the part of an output (by the schema's name) that the op defines; given inputs
            and integer attributes.
    """

    draw: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, Array], int], dict[str, Array]]
    defined: Callable[[str, Array, Mapping[str, Array]], Array]


def _draw_lengths(
    shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``seqlens_k``: the fewest valid rows, all of them, and something between, by turns."""
    tokens = shapes["query"][1]
    total = int(constants["total_sequence_length"].reshape(-1)[0])
    if "query_seqlens" in shapes:
        return _draw_chunks(shapes, total, seed, constants.get("query_seqlens"))
    rows = total
    if total == tokens:
        last = tokens - 1
    elif "sliding_window_cache" in constants:
        last = [total - 1, tokens - 1, (total + tokens) // 2 - 1][seed % 3]
    else:
        rows = max(total, shapes.get("past_key", (0, 0, 0, 0))[2])
        choices = [rows - 1, tokens - 1, (rows + tokens) // 2 - 1]
        last = choices[seed % len(choices)]
    return {
        "seqlens_k": np.full(shapes["seqlens_k"], last, np.int32),
        # of a total that is a constant nothing is fed; a random one has to fit the lengths
        "total_sequence_length": np.full(shapes["total_sequence_length"], rows, np.int32),
    }


def _draw_chunks(
    shapes: Mapping[str, tuple[int, ...]], total: int, seed: int, known: Array | None
) -> dict[str, Array]:
    """``query_seqlens`` of chunks padded to the right, which fit the cache with their padding.

    Unless they are known: then only the lengths are drawn.
    """
    tokens, rng = shapes["query"][1], np.random.default_rng(seed)
    rows = max(total, shapes["past_key"][2])
    batch = shapes["query_seqlens"]
    counts = rng.integers(1, tokens + 1, batch) if known is None else known
    lengths = np.minimum(rng.integers(counts, total + 1, batch), rows - tokens + counts)
    return {"query_seqlens": counts, "seqlens_k": (lengths - 1).reshape(shapes["seqlens_k"])}


def _valid_rows(name: str, array: Array, feeds: Mapping[str, Array]) -> Array:
    if "query_seqlens" in feeds and name in {"output", "output_qk"}:
        tokens = slice(int(feeds["query_seqlens"].min()))
        return array[(slice(None),) * (array.ndim - 2) + (tokens,)]
    if name not in {"present_key", "present_value"}:
        return array
    valid = int(feeds["seqlens_k"].min()) + 1
    if "sliding_window_cache" in feeds:
        valid = kept(valid, array.shape[2], int(feeds["local_window_size"]))
    return array[:, :, :valid]


def _draw_positions(
    shapes: Mapping[str, tuple[int, ...]], _constants: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``position_ids`` within the table, its last row included; one number is the first token's."""
    if "position_ids" not in shapes:
        return {}
    wanted, rows = shapes["position_ids"], shapes["cos_cache"][0]
    x = shapes.get("input") or shapes["X"]
    last = rows - (x[-2] if len(wanted) < 2 else 1)
    positions = np.array(np.random.default_rng(seed).integers(0, last + 1, wanted))
    positions.reshape(-1)[:1] = last if seed % 2 else 0
    return {"position_ids": positions}


def _draw_rows(
    shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``indices`` of rows that the table has, the last one included."""
    rows = shapes["data"][int(constants.get("gather_axis", np.array(0)))]
    indices = np.array(np.random.default_rng(seed).integers(0, rows, shapes["indices"]))
    indices.reshape(-1)[-1:] = rows - 1
    return {"indices": indices}


def _draw_attention(
    shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """Lengths in range, and masks that hide keys by turns not at all, rows at a time, or both.

    The mask is drawn only where ``given`` holds one, whose dtype it then has: 0 or a number where
    a key is seen, and -inf or what nearly is where it is not. Every third seed empties a row.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[str, Array] = {}
    mask = given.get("attn_mask")
    if mask is not None and mask.size > 1:
        hidden = (rng.random(mask.shape) < 1 / 4) & (seed % 3 > 0)
        hidden[..., 0] = False
        rows = hidden.reshape(-1, mask.shape[-1])
        if seed % 3 == 2 and len(rows) > 1:
            rows[0] = True
        drawn["attn_mask"] = ~hidden if mask.dtype == np.bool_ else _floats(mask, hidden)
    if "nonpad_kv_seqlen" in shapes:
        shape = shapes["nonpad_kv_seqlen"]
        keys = min([shapes["K"][-2], *shapes.get("attn_mask", ())[-1:]])
        full = np.full(shape, keys, np.int64)
        drawn["nonpad_kv_seqlen"] = rng.integers(1, keys + 1, shape) if seed % 3 else full
    return drawn


def _floats(mask: Array, hidden: Array) -> Array:
    if mask.dtype.kind in "iu":
        return mask
    lowest = np.where(np.arange(mask.shape[-1]) % 2, -np.inf, -6e4)
    emptied = hidden.all(axis=-1, keepdims=True)
    return np.where(hidden, np.where(emptied, -np.inf, lowest), mask).astype(mask.dtype)


def _hidden_scores(name: str, array: Array, _feeds: Mapping[str, Array]) -> Array:
    """The score of a hidden key may be -inf, the lowest float, or about -1e4: all are -1e4."""
    return np.where(array < -5e3, -1e4, array) if name == "qk_matmul_output" else array


def _later_scores(name: str, array: Array, _feeds: Mapping[str, Array]) -> Array:
    """The score of a later key is the lowest float, or about -3e4."""
    return np.where(array < -1.5e4, -3e4, array) if name == "qk" else array


def _draw_write_indices(
    shapes: Mapping[str, tuple[int, ...]], _given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``write_indices`` that are legal in both modes: the first row, the last, or any."""
    if "write_indices" not in shapes:
        return {}
    room = max(c - u for c, u in zip(shapes["past_cache"], shapes["update"], strict=True))
    wanted = shapes["write_indices"]
    rows = np.random.default_rng(seed).integers(0, room + 1, wanted)
    rows[:1] = (0, room, rows[0])[seed % 3]
    return {"write_indices": rows}


def _draw_coordinates(
    shapes: Mapping[str, tuple[int, ...]], _given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``indices`` of GatherND that data has, from both ends, whatever its batch dims are."""
    dims, wanted = shapes["data"], shapes["indices"]
    count = wanted[-1]
    sizes = np.array([min(dims[i : len(dims) - count + i + 1]) for i in range(count)])
    return {"indices": np.random.default_rng(seed).integers(-sizes, sizes, wanted)}


def _draw_padding(
    shapes: Mapping[str, tuple[int, ...]], _given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """Masks that leave the first key of every sequence, a start that fits the buffer, one beam.

    Of the forms of a mask: flags; ends of at least 1; ends, then starts before them (2B); and
    lengths of packed sequences (3B + 2), of which only the first B count.
    """
    rng, drawn = np.random.default_rng(seed), dict[str, Array]()
    name = "key_padding_mask" if "key_padding_mask" in shapes else "mask_index"
    wanted, keys = shapes.get(name, ()), _keys(shapes)
    if "past_sequence_length" in shapes and "past_key" in shapes:
        new, capacity = _new_rows(shapes), shapes["past_key"][2]
        flags = next(
            (s[-1] for n in (name, "attention_bias") if len(s := shapes.get(n, ())) > 1), None
        )
        room = capacity - new
        start = flags - new if flags is not None else (0, room, rng.integers(0, room + 1))[seed % 3]
        shape = shapes["past_sequence_length"]
        drawn["past_sequence_length"] = np.full(shape, start, np.int32)
        keys = int(start) + new
    if "cache_indirection" in shapes:
        drawn["cache_indirection"] = np.zeros(shapes["cache_indirection"], np.int32)
    if len(wanted) > 1:
        mask = rng.integers(0, 2, wanted)
        mask[..., 0] = 1
        drawn[name] = mask.astype(np.int32)
    elif wanted:
        batch = shapes.get("query", shapes.get("input", ()))[0]
        mask = rng.integers(1, keys + 1, wanted)
        if wanted[0] == 2 * batch:
            mask[batch:] = rng.integers(0, mask[:batch])
        drawn[name] = mask.astype(np.int32)
    return drawn


def _new_rows(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return shapes["key"][-2] if "key" in shapes else shapes["input"][1]


def _keys(shapes: Mapping[str, tuple[int, ...]]) -> int:
    past = shapes.get("past_key", (0, 0, 0, 0))[2] + shapes.get("past", (0, 0, 0, 0, 0))[3]
    return past + _new_rows(shapes)


def _draw_ids(
    shapes: Mapping[str, tuple[int, ...]], _given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """Ids, positions and segments that the tables have, the last row included; flags of a mask."""
    rng, drawn = np.random.default_rng(seed), dict[str, Array]()
    tables = {
        "input_ids": "word_embedding",
        "position_ids": "position_embedding",
        "segment_ids": "segment_embedding",
    }
    for name, table in tables.items():
        if name in shapes:
            rows = shapes[table][0]
            drawn[name] = rng.integers(0, rows, shapes[name])
            drawn[name].reshape(-1)[-1:] = rows - 1
    if "mask" in shapes:
        drawn["mask"] = rng.integers(0, 2, shapes["mask"])
        drawn["mask"][..., 0] = 1
    return drawn


def _draw_routing(
    _shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """``router_probs`` as they are, with many that are equal, and far apart, by turns."""
    if "router_probs" not in given:
        return {}
    logits = given["router_probs"].astype(np.float32)
    return {"router_probs": (logits, np.round(logits), 30 * logits)[seed % 3]}


def _everything(_name: str, array: Array, _feeds: Mapping[str, Array]) -> Array:
    return array


DOMAINS: dict[str, Domain] = {
    "Attention": Domain(_draw_attention, _hidden_scores),
    "GatherND": Domain(_draw_coordinates, _everything),
    "RotaryEmbedding": Domain(_draw_positions, _everything),
    "TensorScatter": Domain(_draw_write_indices, _everything),
    "com.microsoft::Attention": Domain(_draw_padding, _everything),
    "com.microsoft::DecoderMaskedMultiHeadAttention": Domain(_draw_padding, _everything),
    "com.microsoft::EmbedLayerNormalization": Domain(_draw_ids, _everything),
    "com.microsoft::GatherBlockQuantized": Domain(_draw_rows, _everything),
    "com.microsoft::GroupQueryAttention": Domain(_draw_lengths, _valid_rows),
    "com.microsoft::MoE": Domain(_draw_routing, _everything),
    "com.microsoft::MultiHeadAttention": Domain(_draw_padding, _later_scores),
    "com.microsoft::QMoE": Domain(_draw_routing, _everything),
    "com.microsoft::RotaryEmbedding": Domain(_draw_positions, _everything),
}
