"""Inputs by role: ids in the vocabulary, masks with a valid part, positions that agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.cache_layout import cache_layout
from rewriter.nodes import dims_of, op_of
from rewriter.rules.parts.window_cache import kept

Feeds = dict[str, npt.NDArray[Any]]

_TOKENS = re.compile(r"(input_ids|inputs_embeds|position_ids|token_type_ids)")
_PAST = re.compile(r"past_key_values\.\d+\.(key|value)|past_(key|value)s?[._]\d+")
_BUFFER = re.compile(r"(key|value)_cache[._]\d+")
_PRESENT = re.compile(r"present.*")
_SYMBOL = {"batch": 1, "seq": 4, "past": 4}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to fill the inputs of a transformer.

    Attributes:
        seed: of everything random.
        short: how many rows less than full the mask marks as valid.
    """

    seed: int
    short: int

    def __str__(self) -> str:
        return f"seed {self.seed}, " + (f"{self.short} rows short" if self.short else "mask full")


@dataclass(frozen=True, slots=True)
class Layout:
    """Static shapes of the inputs, and the lengths that tie them together.

    Attributes:
        shapes: by input.
        tokens: new tokens S, 0 if the model has no such input.
        total: length of the attention mask, 0 if there is none.
        capacity: rows of the KV cache that comes in.
        windows: outputs that are the cache of a window only, with the rows of that window.
        appended: new rows come last in the cache, however few the mask marks: then what it leaves
            out lies in front, or a token would not see itself (and with a window nothing at all).
        right: the same of a cache that keeps its size (``right`` of
            :class:`~rewriter.cache_layout.CacheLayout`).
        left: a cache that is a buffer, written from the left.
        padded: tokens of a first chunk may have pads in front; of a slice, whose outputs may be
            any inner value, it is not known which rows those are.
    """

    shapes: Mapping[str, tuple[int, ...]]
    tokens: int
    total: int
    capacity: int
    windows: Mapping[str, int] = field(default_factory=dict)
    appended: bool = False
    right: bool = False
    left: bool = False
    padded: bool = True

    @property
    def first_prompt(self) -> bool:
        """Whether nothing precedes the tokens; rows past the valid ones are then padding."""
        return self.tokens == self.total

    @property
    def several(self) -> int:
        """Sequences of a chunk that is written into a buffer; 1 where that is no matter."""
        batch = next((s[0] for n, s in self.shapes.items() if _TOKENS.fullmatch(n) and s), 1)
        return batch if self.left and self.tokens > 1 else 1

    def scenarios(self, seed: int, count: int) -> list[Scenario]:
        """Full masks, then masks that leave room, where the layout has room."""
        room = self.total - self.tokens if not self.first_prompt else self.tokens - 1
        half = room // 2
        if self.right and self.padded and self.tokens > 1:
            room += self.tokens // 2
        if self.first_prompt and self.windows:
            room = half = 0  # such a node takes no padded prompt
        shorts = [0, *sorted({half, room} - {0})] if self.total else [0]
        return [Scenario(seed + i, shorts[i % len(shorts)]) for i in range(max(count, len(shorts)))]

    def valid(self, scenario: Scenario) -> int:
        """Rows of the cache that hold something after the call (of every sequence)."""
        return self.total - scenario.short


def layout(
    model: ir.Model, windows: Mapping[str, int] | None = None, part_of: Layout | None = None
) -> Layout:
    """Sizes of a model's inputs; dims that are not fixed get small numbers that agree.

    Args:
        model: whose inputs they are.
        windows: as in :class:`Layout`.
        part_of: the layout of the whole, where the model is a slice.
    """
    from rewriter.passes.fix_dims import places_and_roles

    roles = places_and_roles(model)[1]
    shapes: dict[str, tuple[int, ...]] = {}
    for value in model.graph.inputs:
        if value.is_initializer() or value.name is None:
            continue
        shapes[value.name] = tuple(
            d if isinstance(d, int) else _guess(str(d), roles) for d in value.shape or ()
        )
    tokens = next((s[1] for n, s in shapes.items() if _TOKENS.fullmatch(n) and len(s) > 1), 0)
    total = next((s[1] for n, s in shapes.items() if n == "attention_mask" and len(s) == 2), 0)
    capacity = next((s[2] for n, s in shapes.items() if _PAST.fullmatch(n) and len(s) == 4), 0)
    if part_of is not None:
        windows, right, left = part_of.windows, part_of.right, False
    else:
        noted = cache_layout(model, "the model")
        alignment = "" if noted is None else noted.alignment
        right, left = alignment == "right", alignment == "left"
    return Layout(
        shapes,
        tokens,
        total,
        capacity,
        windows or {},
        appended=right or _appends(model),
        right=right,
        left=left,
        padded=part_of is None,
    )


def _appends(model: ir.Model) -> bool:
    """Whether an output is a cache that came in with something behind it."""
    outputs = set(model.graph.outputs)
    return any(
        use.node.op_type == "Concat" and use.idx == 0 and use.node.outputs[0] in outputs
        for value in model.graph.inputs
        if _PAST.fullmatch(value.name or "")
        for use in value.uses()
    )


def _guess(symbol: str, roles: Mapping[str, str]) -> int:
    if "+" in symbol:
        return sum(_guess(part.strip(), roles) for part in symbol.split("+"))
    role = roles.get(symbol, "")
    if role == "total":
        return _SYMBOL["past"] + _SYMBOL["seq"]
    return _SYMBOL.get(role, 2)


def model_feeds(model: ir.Model, sizes: Layout, scenario: Scenario) -> Feeds:
    """Inputs of a whole model for one scenario."""
    rng = np.random.default_rng(scenario.seed)
    valid = sizes.valid(scenario)
    feeds: Feeds = {}
    written = _written(sizes, scenario)
    for value in model.graph.inputs:
        if value.name is None or value.name not in sizes.shapes:
            continue
        shape = sizes.shapes[value.name]
        if value.name in written:
            array: Any = written[value.name]
        elif value.name == "attention_mask" and len(shape) == 2:
            at = np.arange(shape[1])
            marked = at >= scenario.short if sizes.appended else at < valid
            array = np.broadcast_to(marked, shape)
        elif value.name == "position_ids" and sizes.total:
            start = 0 if sizes.first_prompt else valid - sizes.tokens
            array = np.broadcast_to(np.maximum(start + np.arange(shape[-1]), 0), shape)
        elif value.name == "input_ids":
            array = rng.integers(0, _vocabulary(value) or 2, shape)
        elif value.dtype is not None and value.dtype.is_integer() and (rows := _vocabulary(value)):
            array = rng.integers(0, rows, shape)
        else:
            array = random_array(rng, value.dtype or ir.DataType.FLOAT, shape)
        feeds[value.name] = np.array(array).astype((value.dtype or ir.DataType.FLOAT).numpy())
    return feeds


def _written(sizes: Layout, scenario: Scenario) -> Feeds:
    """Where a TensorScatter writes, what is valid then, and positions that agree with it."""
    shape = sizes.shapes.get("write_indices")
    rows = [s[2] for name, s in sizes.shapes.items() if _BUFFER.fullmatch(name) and len(s) == 4]
    if shape is None or len(shape) != 1 or not rows or not sizes.tokens:
        return {}
    room = max(min(rows) - sizes.tokens, 0)
    start = np.random.default_rng(scenario.seed).integers(0, room + 1, shape)
    found = {"write_indices": start, "nonpad_kv_seqlen": start + sizes.tokens}
    if len(sizes.shapes.get("position_ids", ())) == 2:
        found["position_ids"] = start[:, None] + np.arange(sizes.tokens)[None]
    return found


def random_array(
    rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Standard normal floats, coin-flip bools, or the integers 0 to 3."""
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer():
        return rng.integers(0, 4, shape).astype(dtype.numpy())
    return rng.standard_normal(shape).astype(dtype.numpy())


def specified(
    name: str, array: npt.NDArray[Any], sizes: Layout, scenario: Scenario
) -> npt.NDArray[Any]:
    """The rows of an output that the ops define: no padding, no unwritten cache."""
    valid = sizes.valid(scenario)
    if sizes.right:
        return _newest(name, array, sizes, valid)
    if not sizes.total or (sizes.appended and not sizes.first_prompt):
        return array
    if name in sizes.windows:
        return array[:, :, : kept(valid, array.shape[2], sizes.windows[name])]
    if array.ndim == 4 and _PRESENT.fullmatch(name):
        return array[:, :, :valid]
    if sizes.first_prompt and scenario.short and array.ndim >= 2:
        return array[:, :valid] if array.shape[1] == sizes.tokens else array
    return array


def _newest(name: str, array: npt.NDArray[Any], sizes: Layout, valid: int) -> npt.NDArray[Any]:
    """The last rows of a cache or of the tokens: those that are filled, and no pads."""
    if array.ndim == 4 and _PRESENT.fullmatch(name):
        return array[:, :, array.shape[2] - min(valid, sizes.capacity) :]
    real = min(valid, sizes.tokens)
    if array.ndim >= 2 and array.shape[1] in {sizes.tokens, real}:
        return array[:, array.shape[1] - real :]
    return array


def shortened(model: ir.Model, feeds: Feeds, sizes: Layout, scenario: Scenario) -> Feeds:
    """Inputs for the model that a cache of fixed size was made of: what is not filled is not there.

    Args:
        model: gets them as they are unless its past, mask and tokens may have any length.
        feeds: for the cache of fixed size.
        sizes: of that.
        scenario: how they were made.
    """
    axes = {name: axis for name in feeds if (axis := _length_axis(name, feeds[name].ndim))}
    named = [(v.name or "", dims_of(v)) for v in model.graph.inputs if v.name in axes]
    if any(dims is None or dims[axes[name]] is not None for name, dims in named):
        return feeds
    pads = max(scenario.short - sizes.capacity, 0)
    cut = dict(feeds)
    for name, _ in named:
        start = pads if _TOKENS.fullmatch(name) else scenario.short
        cut[name] = feeds[name][(slice(None),) * axes[name] + (slice(start, None),)]
    return cut


def _length_axis(name: str, rank: int) -> int:
    """The axis of an input that is as long as past, tokens, or both; 0 if there is none."""
    if _PAST.fullmatch(name) and rank == 4:
        return 2
    return int((_TOKENS.fullmatch(name) is not None or name == "attention_mask") and rank > 1)


_EMBED = "com.microsoft::EmbedLayerNormalization"
_TABLE_OF = {
    ("Gather", 1): 0,
    ("com.microsoft::GatherBlockQuantized", 1): 0,
    (_EMBED, 0): 2,
    (_EMBED, 1): 4,
    (_EMBED, 8): 3,
}
"""Which input is the table whose rows another input looks up."""


def _vocabulary(ids: ir.Value) -> int | None:
    """Rows of the table that the ids look up, if they do."""
    sizes = [
        rows
        for node, index in ids.uses()
        if (place := _TABLE_OF.get((op_of(node), index))) is not None
        and (table := node.inputs[place]) is not None
        and (rows := (dims_of(table) or (None,))[0]) is not None
    ]
    return min(sizes, default=None)
