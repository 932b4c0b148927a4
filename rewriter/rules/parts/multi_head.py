"""What MultiHeadAttention, Attention and DecoderMaskedMultiHeadAttention of com.microsoft share.

softmax(scale·q·kᵀ + hidden + attention_bias)·v, as ONNX Runtime 1.32 computes it on the CPU:

* hidden is ``mask_filter_value`` for a key that a mask hides, so that a row of nothing but padding
  is the softmax of its scores; and the lowest float for a later key, of which nothing is left.
* A mask is int32: flags (B, T) or (B, S, T); ends (B); or the lengths of packed sequences
  (3B + 2), whose first B are ends. Attention also takes ends and starts (2B).
* With ``past_sequence_length`` p the past is a buffer: the L new rows go to p, ... p + L - 1, then
  T = p + L, and the present is the whole buffer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.facts import constant, static_dims
from rewriter.rules.parts import attention, cache, masks, positions
from rewriter.site import Site
from rewriter.tape import Tape

EMITS = (
    "Add", "Concat", "Expand", "Greater", "GreaterOrEqual", "And", "Less", "LessOrEqual", "MatMul",
    "Mul", "Reshape", "ScatterElements", "Slice", "Softmax", "Split", "Transpose", "Unsqueeze",
    "Where",
)  # fmt: skip
"""All that a rule emits which is made of these parts."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Keys (B, H, T, D) and values (B, H, T, Dv) that the scores are over.

    Attributes:
        keys: past rows, then the L new ones.
        values: the same.
        caches: the presents; the keys and values themselves, unless a buffer has room behind them.
        first: how many rows come before the new ones.
        where: positions (1, L) of the new rows where those are known at run time alone; rows
            behind them are not written yet.
    """

    keys: ir.Value
    values: ir.Value
    caches: tuple[ir.Value, ir.Value]
    first: int = 0
    where: ir.Value | None = None


def new_rows(key: ir.Value, value: ir.Value) -> Rows:
    """No past."""
    return Rows(key, value, (key, value))


def after_past(op: Tape, past: tuple[ir.Value, ir.Value], new: tuple[ir.Value, ir.Value]) -> Rows:
    """A past (B, H, P, D) that grows."""
    rows = static_dims(past[0])[2]
    if rows == 0:
        return new_rows(*new)
    keys, values = (op.Concat(old, more, axis=2) for old, more in zip(past, new, strict=True))
    return Rows(keys, values, (keys, values), rows)


def in_buffer(
    op: Tape,
    site: Site,
    past: tuple[ir.Value, ir.Value],
    new: tuple[ir.Value, ir.Value],
    start: ir.Value,
    total: int | None,
) -> Rows:
    """New rows from ``start`` on in a buffer (B, H, C, D).

    Args:
        op: the tape.
        site: the node.
        past: the buffers.
        new: key and value rows.
        start: ``past_sequence_length``, one integer.
        total: T where a mask or a bias says it.
    """
    capacity, count = static_dims(past[0])[2], static_dims(new[0])[2]
    stored = constant(start)
    known = int(stored.numpy().item()) if stored is not None else (total or 0) - count
    if stored is None and total is None:
        where = _rows_from(op, start, count)
        keys, values = (
            cache.write(op, old, more, where, capacity) for old, more in zip(past, new, strict=True)
        )
        return Rows(keys, values, (keys, values), where=where)
    fits = 0 <= known <= capacity - count
    site.require(fits, f"{count} rows from {known} on do not fit a cache of {capacity} rows")
    keys, values = (
        op.Concat(_slice(op, old, 0, known), more, axis=2) if known else more
        for old, more in zip(past, new, strict=True)
    )
    end = known + count
    caches = (keys, values) if end == capacity else tuple(
        op.Concat(written, _slice(op, old, end, capacity), axis=2)
        for written, old in zip((keys, values), past, strict=True)
    )  # fmt: skip
    return Rows(keys, values, (caches[0], caches[1]), known)


def _rows_from(op: Tape, start: ir.Value, count: int) -> ir.Value:
    """``start`` + 0, 1, ... as (1, L)."""

    def build() -> ir.Value:
        assert start.dtype is not None
        column = op.Reshape(start, op.const(np.array([1, 1], np.int64), name="column"))
        return op.Add(column, op.const(np.arange(count)[None], start.dtype, name="steps"))

    return op.once(("rows from", start, count), build)


def _slice(op: Tape, x: ir.Value, start: int, end: int, axis: int = 2) -> ir.Value:
    bounds = (op.const(np.array([at], np.int64), name="bound") for at in (start, end, axis))
    return op.Slice(x, *bounds)


def known_total(site: Site, mask: str) -> int | None:
    """T, as the shape of a mask of flags or of the bias says it."""
    for name in (mask, "attention_bias"):
        given = site.optional(name)
        if given is not None and len(shape := site.shape(given, name)) > 1:
            return shape[-1]
    return None


def one_beam(site: Site) -> None:
    """Refuse a cache that is reordered; of one beam there is no other order."""
    given = site.optional("cache_indirection")
    if given is None:
        return
    beams = site.shape(given, "cache_indirection")[1]
    site.require(
        beams == 1, f"cache_indirection reorders the cache of {beams} beams at run time: use one"
    )


def of_known_length(site: Site, rows: Rows) -> None:
    """Refuse to show scores over a cache whose length is known at run time alone."""
    fixed = rows.where is None
    site.require(fixed, "qk has as many columns as past_sequence_length says at run time")


def read_past(site: Site, new: tuple[ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value] | None:
    """``past_key`` and ``past_value`` (B, H, P, D), if they are given."""
    names = ("past_key", "past_value")
    past = [site.optional(name) for name in names]
    if past[0] is None or past[1] is None:
        one = past[0] is not past[1]
        site.require(not one, "past_key and past_value have to be given both, or neither")
        return None
    for name, old, more in zip(names, past, new, strict=True):
        dims, fresh = site.shape(old, name) if old is not None else (), static_dims(more)
        fits = len(dims) == 4 and (*dims[:2], dims[3]) == (*fresh[:2], fresh[3])
        site.require(fits, f"{name} {dims} does not fit heads {fresh}")
    return past[0], past[1]


def read_seen(
    op: Tape, site: Site, name: str, query: ir.Value, rows: Rows, *, starts: bool = False
) -> ir.Value | None:
    """Keys (B, 1, 1 or S, T) that a mask leaves to be seen; ``starts`` if it may be (2B)."""
    mask = site.optional(name)
    if mask is None:
        return None
    batch, _, tokens, _ = static_dims(query)
    keys, shape = static_dims(rows.keys)[2], site.shape(mask, name)
    if shape in {(batch, keys), (batch, tokens, keys)}:
        block = (batch, 1, tokens if len(shape) == 3 else 1, keys)
        flags = op.Reshape(mask, op.const(np.array(block, np.int64), name="mask_shape"))
        return op.Greater(flags, op.const(0, mask.dtype, name="padding"))
    lengths = {(batch,), (3 * batch + 2,)} | ({(2 * batch,)} if starts else set())
    site.require(shape in lengths, f"{name} {shape} is not handled")
    columns = op.const(np.array([batch, 1, 1, 1], np.int64), name="mask_shape")
    key = op.const(np.arange(keys)[None, None, None], mask.dtype, name="keys")
    ends = mask if shape == (batch,) else _slice(op, mask, 0, batch, 0)
    seen = op.Less(key, op.Reshape(ends, columns))
    if shape != (2 * batch,):
        return seen
    first = op.Reshape(_slice(op, mask, batch, 2 * batch, 0), columns)
    return op.And(seen, op.GreaterOrEqual(key, first))


def hidden(
    op: Tape, site: Site, query: ir.Value, rows: Rows, seen: ir.Value | None, *, causal: bool
) -> ir.Value | None:
    """What is added to scores (B, H, S, T) for the keys that are hidden; 0 for the others."""
    keys, dtype = static_dims(rows.keys)[2], query.dtype
    assert dtype is not None
    number = site.number("mask_filter_value", -10000.0)
    added = op.const(np.float32(0), dtype, name="seen")
    if seen is not None:
        added = op.Where(seen, added, op.const(np.float32(number), dtype, name="padding"))
    where, tokens = rows.where, static_dims(query)[2]
    if causal and where is None:
        row = np.arange(rows.first, rows.first + tokens, dtype=np.int32)
        where = op.const(row[None], name="positions")
    elif where is not None and not causal:
        where = _slice(op, where, static_dims(where)[1] - 1, static_dims(where)[1], 1)
    if where is None:
        return added if seen is not None else None
    lowest = max(min(masks.FLOOR, number + 2 * positions.MASKED), float(dtype.min))
    written = positions.visible(op, where, keys, -1, 0)
    return op.Where(written, added, op.const(lowest, dtype, name="later"))


def read_bias(site: Site, query: ir.Value, rows: Rows) -> ir.Value | None:
    """``attention_bias`` (B or 1, H or 1, S, T)."""
    bias = site.optional("attention_bias")
    if bias is None:
        return None
    batch, heads, tokens, _ = static_dims(query)
    keys, dims = static_dims(rows.keys)[2], site.shape(bias, "attention_bias")
    fits = len(dims) == 4 and dims[0] in {1, batch} and dims[1] in {1, heads}
    site.require(
        fits and dims[2:] == (tokens, keys),
        f"attention_bias {dims} does not fit {tokens} tokens and {keys} keys",
    )
    return bias


def mixed(
    op: Tape, site: Site, query: ir.Value, rows: Rows, added: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Y (B, S, H·Dv), and the scores (B, H, S, T) before the softmax."""
    scale = site.number("scale", 0.0) or 1 / math.sqrt(static_dims(query)[3])
    scores = attention.scores(op, query, rows.keys, scale)
    for more in (added, read_bias(site, query, rows)):
        scores = scores if more is None else op.Add(scores, more)
    y = op.MatMul(op.Softmax(scores, axis=-1), rows.values)
    return attention.from_heads(op, y), scores
