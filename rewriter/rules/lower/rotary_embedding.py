"""RotaryEmbedding of com.microsoft and of ai.onnx 23.

y[t, h] is x[t, h] rotated by the angles of its position (:mod:`rewriter.rules.parts.rope`). How the
two ops differ is in :mod:`rewriter.rules.parts.rotary_inputs`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import lowers
from rewriter.rules.parts import rope
from rewriter.rules.parts.rotary_inputs import (
    Rotation,
    read_contrib,
    read_positions,
    read_standard,
    tokens_of,
)
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape

_PRIMITIVES = (
    "Add", "Concat", "Gather", "Mul", "Reshape", "Slice", "Split", "Sub", "Unsqueeze"
)  # fmt: skip


def _rotated(op: Tape, given: Rotation, positions: ir.Value | None) -> ir.Value:
    """Rank 3 is rotated as (B, S, H, D), which is the same memory: nothing is transposed."""
    axis = rope.HEADS_SECOND if given.heads_second else rope.HEADS_THIRD
    if positions is None:
        cos, sin = (rope.spread(op, angles, axis) for angles in (given.cos, given.sin))
    else:
        tables = (given.cos, given.sin)
        cos, sin = (rope.table_rows(op, table, positions, axis) for table in tables)
    if given.heads_second:
        return rope.rotate(op, given.x, cos, sin, interleaved=given.interleaved)
    batch, tokens = tokens_of(given)
    x = reshaped(op, given.x, (batch, tokens, given.heads, given.size), "heads_shape")
    y = rope.rotate(op, x, cos, sin, interleaved=given.interleaved)
    return reshaped(op, y, (batch, tokens, given.heads * given.size), "flat_shape")


@lowers("com.microsoft::RotaryEmbedding", emits=("Add", "Expand", "RotaryEmbedding"), order=0)
def rotary_embedding_23(op: Tape, site: Site) -> ir.Value:
    """RotaryEmbedding(x, cos, sin, position_ids), where the model's opset has it."""
    site.require(site.opset >= 23, f"RotaryEmbedding needs opset 23, the model has {site.opset}")
    given = read_contrib(site)
    positions = read_positions(op, site, given)
    batch, tokens = tokens_of(given)
    if dims_of(positions) != (batch, tokens):
        shape = op.const(np.array([batch, tokens], np.int64), name="positions_shape")
        positions = op.Expand(positions, shape)
    return op.RotaryEmbedding(
        given.x,
        given.cos,
        given.sin,
        positions,
        interleaved=int(given.interleaved),
        num_heads=given.heads,
        rotary_embedding_dim=site.integer("rotary_embedding_dim", 0),
    )


@lowers("com.microsoft::RotaryEmbedding", emits=_PRIMITIVES, order=1, opset=13)
def rotation_primitives(op: Tape, site: Site) -> ir.Value:
    """[a·cos - b·sin, b·cos + a·sin, tail] with the rows of the tables at the positions."""
    given = read_contrib(site)
    return _rotated(op, given, read_positions(op, site, given))


@lowers("RotaryEmbedding", emits=_PRIMITIVES, opset=23)
def standard_rotation_primitives(op: Tape, site: Site) -> ir.Value:
    """The same; without positions the tables hold one row a token."""
    given = read_standard(site)
    positions = site.optional("position_ids")
    rank = site.rank(given.cos, "cos_cache")
    wanted = 3 if positions is None else 2
    site.require(rank == wanted, f"cos_cache has rank {rank}, not {wanted}")
    return _rotated(op, given, positions)
