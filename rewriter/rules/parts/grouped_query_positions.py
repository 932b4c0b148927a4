"""Where the new tokens of a GroupQueryAttention stand, and query and key rotated to there."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rules.parts import positions, rope
from rewriter.rules.parts.grouped_query_sizes import Sizes
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape


def read_positions(op: Tape, site: Site, sizes: Sizes) -> ir.Value:
    """Positions (B or 1, S) of the new tokens.

    A first prompt starts at 0, everything else ends at ``seqlens_k``; of a chunk that is padded
    to the right the first ``query_seqlens`` tokens do.
    """
    last, count = site.input("seqlens_k"), site.optional("query_seqlens")
    if sizes.first_prompt:
        return positions.first_positions(op, sizes.tokens)
    if count is not None:
        return _padded_positions(op, last, count, sizes.tokens)
    behind = positions.next_positions(op, last, sizes.tokens)
    if not sizes.runtime or sizes.tokens == 1:
        return behind
    total = site.input("total_sequence_length")

    def build() -> ir.Value:
        assert last.dtype is not None
        first = op.Equal(total, op.const(sizes.tokens, total.dtype, name="tokens"))
        steps = op.const(np.arange(sizes.tokens)[None], last.dtype, name="positions")
        return op.Where(first, steps, behind)

    return op.once(("positions of a prompt", last, total, sizes.tokens), build)


def _padded_positions(op: Tape, last: ir.Value, count: ir.Value, tokens: int) -> ir.Value:
    def build() -> ir.Value:
        assert last.dtype is not None
        same = count if count.dtype == last.dtype else op.Cast(count, to=last.dtype)
        before = op.Sub(*(reshaped(op, x, (-1, 1), "column") for x in (last, same)))
        steps = op.const(np.arange(tokens)[None] + 1, last.dtype, name="steps")
        return op.Add(before, steps)

    return op.once(("positions of a chunk", last, count, tokens), build)


def rotated(
    op: Tape, site: Site, sizes: Sizes, where: ir.Value, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Query and key rotated by their positions, or by ``position_ids``, if the node does that."""
    tables = [site.optional(name) for name in ("cos_cache", "sin_cache")]
    interleaved = bool(site.integer("rotary_interleaved", 0))
    given = site.optional("position_ids")
    if not site.integer("do_rotary", 0):
        return query, key
    at = where if given is None else _rotated_at(op, site, sizes, given)
    cos, sin = (None if t is None else rope.table_rows(op, t, at) for t in tables)
    if cos is None or sin is None:
        site.refuse("do_rotary=1 without cos_cache and sin_cache")
    return (
        rope.rotate(op, query, cos, sin, interleaved=interleaved),
        rope.rotate(op, key, cos, sin, interleaved=interleaved),
    )


def _rotated_at(op: Tape, site: Site, sizes: Sizes, given: ir.Value) -> ir.Value:
    """``position_ids`` as they are; of a first prompt only the very first one counts (schema)."""
    if not sizes.first_prompt and (not sizes.runtime or sizes.ragged):
        return given
    total = site.input("total_sequence_length")

    def build() -> ir.Value:
        assert given.dtype is not None
        flat = reshaped(op, given, (-1,), "flat")
        steps = op.const(np.arange(sizes.tokens)[None], given.dtype, name="positions")
        from_first = op.Add(sliced(op, flat, 0, 1, 0), steps)
        if sizes.first_prompt:
            return from_first
        first = op.Equal(total, op.const(sizes.tokens, total.dtype, name="tokens"))
        return op.Where(first, from_first, given)

    return op.once(("rotated at", given, total, sizes.tokens), build)
