"""RotaryEmbedding of com.microsoft and of ai.onnx 23.

y[t, h] is x[t, h] turned by the angles of its position (:mod:`rewriter.rules.parts.rope`). The
two ops differ (D11; ORT's ``rotary_embedding_helper.h`` of both, onnx Operators.md):

* order of inputs; ``position_ids`` of com.microsoft may be one number p, the position of the
  first token; those of ai.onnx may be left out, and the tables are then (B, S, R/2);
* at rank 3 ai.onnx needs ``num_heads``, com.microsoft takes heads as wide as the table turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.facts import dims_of
from rewriter.rule import lowers
from rewriter.rules.parts import rope
from rewriter.site import Site
from rewriter.tape import Tape

_PRIMITIVES = (
    "Add", "Concat", "Gather", "Mul", "Reshape", "Slice", "Split", "Sub", "Unsqueeze"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rotation:
    """What both ops say: x is (B, S, H·D), or (B, H, S, D) if ``heads_second``."""

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    heads: int
    size: int
    heads_second: bool
    interleaved: bool


def _contrib(site: Site) -> _Rotation:
    packed = site.integer("is_packed_batching", 0)
    site.require(packed == 0, "is_packed_batching=1 is not handled")
    scale = site.number("scale", 1.0)
    site.require(
        scale in {1.0}, f"scale={scale:g} is ignored by ONNX Runtime and used by the schema"
    )
    part, heads = site.integer("rotary_embedding_dim", 0), site.integer("num_heads", 0)
    site.require(not part or heads > 0, "rotary_embedding_dim without num_heads is not legal")
    return _rotation(site, "input", part, heads)


def _standard(site: Site) -> _Rotation:
    rank, heads = site.rank(site.input("X"), "X"), site.integer("num_heads", 0)
    site.require(rank != 3 or heads > 0, "num_heads is missing at rank 3")
    return _rotation(site, "X", site.integer("rotary_embedding_dim"), heads)


def _rotation(site: Site, name: str, part: int, heads: int) -> _Rotation:
    """The sizes that follow from shapes, checked against the attributes."""
    x = site.input(name)
    shape, cos, sin = site.shape(x, name), site.input("cos_cache"), site.input("sin_cache")
    width = 2 * site.shape(cos, "cos_cache")[-1]
    site.require(dims_of(cos) == dims_of(sin), "cos_cache and sin_cache differ in shape")
    site.require(len(shape) in {3, 4}, f"{name} has rank {len(shape)}, not 3 or 4")
    if len(shape) == 4:
        size = shape[3]
        site.require(heads in {0, shape[1]}, f"num_heads={heads} but {name} has {shape[1]} heads")
        heads = shape[1]
    else:
        size = shape[2] // heads if heads else width
        heads = heads or shape[2] // size
        site.require(heads * size == shape[2], f"{heads} heads do not divide {name} evenly")
    turned = part or size
    site.require(
        turned == width and turned <= size, f"tables for {width} of {turned} features of {size}"
    )
    interleaved = bool(site.integer("interleaved", 0))
    return _Rotation(x, cos, sin, heads, size, len(shape) == 4, interleaved)


def _positions(op: Tape, site: Site, given: _Rotation) -> ir.Value:
    """``position_ids`` of com.microsoft as (B, S), or as (1, S) if it is the first one."""
    positions = site.input("position_ids")
    shape = site.shape(positions, "position_ids")
    batch, tokens = _tokens(given)
    if shape in {(), (1,)}:
        return op.once(
            ("positions from", positions, tokens),
            lambda: op.Add(positions, op.const(np.arange(tokens)[None], ir.DataType.INT64)),
        )
    site.require(shape == (batch, tokens), f"position_ids {shape} is not ({batch}, {tokens})")
    return positions


def _tokens(given: _Rotation) -> tuple[int, int]:
    shape = dims_of(given.x) or ()
    batch, tokens = shape[0], shape[2 if given.heads_second else 1]
    assert batch is not None
    assert tokens is not None
    return batch, tokens


def _rotated(op: Tape, given: _Rotation, positions: ir.Value | None) -> ir.Value:
    """Rank 3 is turned as (B, S, H, D), which is the same memory: nothing is transposed."""
    axis = rope.HEADS_SECOND if given.heads_second else rope.HEADS_THIRD
    if positions is None:
        cos, sin = (rope.spread(op, angles, axis) for angles in (given.cos, given.sin))
    else:
        tables = (given.cos, given.sin)
        cos, sin = (rope.table_rows(op, table, positions, axis) for table in tables)
    if given.heads_second:
        return rope.rotate(op, given.x, cos, sin, interleaved=given.interleaved)
    batch, tokens = _tokens(given)
    shape = np.array([batch, tokens, given.heads, given.size], np.int64)
    x = op.Reshape(given.x, op.const(shape, name="heads_shape"))
    y = rope.rotate(op, x, cos, sin, interleaved=given.interleaved)
    flat = np.array([batch, tokens, given.heads * given.size], np.int64)
    return op.Reshape(y, op.const(flat, name="flat_shape"))


@lowers("com.microsoft::RotaryEmbedding", emits=("Add", "Expand", "RotaryEmbedding"), order=0)
def rotary_embedding_23(op: Tape, site: Site) -> ir.Value:
    """RotaryEmbedding(x, cos, sin, position_ids), where the model's opset has it."""
    site.require(site.opset >= 23, f"RotaryEmbedding needs opset 23, the model has {site.opset}")
    given = _contrib(site)
    positions = _positions(op, site, given)
    batch, tokens = _tokens(given)
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
    given = _contrib(site)
    return _rotated(op, given, _positions(op, site, given))


@lowers("RotaryEmbedding", emits=_PRIMITIVES, opset=23)
def standard_rotation_primitives(op: Tape, site: Site) -> ir.Value:
    """The same; without positions the tables hold one row a token."""
    given = _standard(site)
    positions = site.optional("position_ids")
    rank = site.rank(given.cos, "cos_cache")
    wanted = 3 if positions is None else 2
    site.require(rank == wanted, f"cos_cache has rank {rank}, not {wanted}")
    return _rotated(op, given, positions)
