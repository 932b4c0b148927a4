"""Past and present of MultiHeadAttention, Attention and DecoderMaskedMultiHeadAttention.

A past (B, H, P, D) grows by the new rows; or, with ``past_sequence_length`` p, it is a buffer: the
L new rows go to p, ... p + L - 1, then T = p + L, and the present is the whole buffer
(com.microsoft, ONNX Runtime 1.32).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant, static_dims
from rewriter.rules.parts import cache
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape


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
        op.Concat(sliced(op, old, 0, known, 2), more, axis=2) if known else more
        for old, more in zip(past, new, strict=True)
    )
    end = known + count
    caches = (keys, values) if end == capacity else tuple(
        op.Concat(written, sliced(op, old, end, capacity, 2), axis=2)
        for written, old in zip((keys, values), past, strict=True)
    )  # fmt: skip
    return Rows(keys, values, (caches[0], caches[1]), known)


def _rows_from(op: Tape, start: ir.Value, count: int) -> ir.Value:
    """``start`` + 0, 1, ... as (1, L)."""

    def build() -> ir.Value:
        assert start.dtype is not None
        column = reshaped(op, start, (1, 1), "column")
        return op.Add(column, op.const(np.arange(count)[None], start.dtype, name="steps"))

    return op.once(("rows from", start, count), build)


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
