"""What a RotaryEmbedding of com.microsoft or of ai.onnx 23 is given, read and checked.

The two differ (D11; ORT's ``rotary_embedding_helper.h`` of both, onnx Operators.md):

* order of inputs; ``position_ids`` of com.microsoft may be one number p, the position of the
  first token; those of ai.onnx may be left out, and the tables are then (B, S, R/2);
* at rank 3 ai.onnx needs ``num_heads``, com.microsoft takes heads as wide as the tables rotate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.site import Site
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Rotation:
    """What both ops say: x is (B, S, H·D), or (B, H, S, D) if ``heads_second``."""

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    heads: int
    size: int
    heads_second: bool
    interleaved: bool


def read_contrib(site: Site) -> Rotation:
    """Of com.microsoft."""
    packed = site.integer("is_packed_batching", 0)
    site.require(packed == 0, "is_packed_batching=1 is not handled")
    scale = site.number("scale", 1.0)
    site.require(
        scale in {1.0}, f"scale={scale:g} is ignored by ONNX Runtime and used by the schema"
    )
    part, heads = site.integer("rotary_embedding_dim", 0), site.integer("num_heads", 0)
    site.require(not part or heads > 0, "rotary_embedding_dim without num_heads is not legal")
    return _sizes(site, "input", part, heads)


def read_standard(site: Site) -> Rotation:
    """Of ai.onnx."""
    rank, heads = site.rank(site.input("X"), "X"), site.integer("num_heads", 0)
    site.require(rank != 3 or heads > 0, "num_heads is missing at rank 3")
    return _sizes(site, "X", site.integer("rotary_embedding_dim"), heads)


def _sizes(site: Site, name: str, part: int, heads: int) -> Rotation:
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
    rotated = part or size
    site.require(
        rotated == width and rotated <= size, f"tables for {width} of {rotated} features of {size}"
    )
    interleaved = bool(site.integer("interleaved", 0))
    return Rotation(x, cos, sin, heads, size, len(shape) == 4, interleaved)


def read_positions(op: Tape, site: Site, given: Rotation) -> ir.Value:
    """``position_ids`` of com.microsoft as (B, S), or as (1, S) if it is the first one."""
    positions = site.input("position_ids")
    shape = site.shape(positions, "position_ids")
    batch, tokens = tokens_of(given)
    if shape in {(), (1,)}:
        return op.once(
            ("positions from", positions, tokens),
            lambda: op.Add(positions, op.const(np.arange(tokens)[None], ir.DataType.INT64)),
        )
    site.require(shape == (batch, tokens), f"position_ids {shape} is not ({batch}, {tokens})")
    return positions


def tokens_of(given: Rotation) -> tuple[int, int]:
    """B and S."""
    shape = dims_of(given.x) or ()
    batch, tokens = shape[0], shape[2 if given.heads_second else 1]
    assert batch is not None
    assert tokens is not None
    return batch, tokens
