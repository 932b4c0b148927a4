"""com.microsoft EmbedLayerNormalization to gathers, additions and a norm.

sum = word_embedding[input_ids] + position_embedding[position_ids] + segment_embedding[segment_ids],
positions 0, 1, ... where none are given; output = norm(sum) · gamma + beta over the last axis.
mask_index counts the ones of a mask (B, S), and is 0 without; ``mask_index_type`` only tells shape
inference whether it is there (ORT contrib schema, ``embed_layer_norm.cc``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import axes
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "com.microsoft::EmbedLayerNormalization",
    emits=("Add", "Cast", "Equal", "Expand", "Gather", "LayerNormalization", "ReduceSum"),
    opset=17,
)
def gathers_and_layer_norm(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """LayerNormalization(Gather(words) + Gather(positions) + Gather(segments)), mask_index, sum."""
    ids = site.input("input_ids")
    shape = site.shape(ids, "input_ids")
    total = op.Add(
        op.Gather(site.input("word_embedding"), ids, axis=0), _positions(op, site, shape)
    )
    segments, table = site.optional("segment_ids"), site.optional("segment_embedding")
    one = (segments is None) != (table is None)
    site.require(not one, "segment_ids and segment_embedding have to be given both, or neither")
    if segments is not None and table is not None:
        total = op.Add(total, op.Gather(table, segments, axis=0))
    site.ignore("mask_index_type")
    y = op.LayerNormalization(
        total,
        site.input("gamma"),
        site.input("beta"),
        axis=-1,
        epsilon=site.number("epsilon"),
        stash_type=1,
    )
    return y, _mask_index(op, site, shape[0]), total


def _positions(op: Tape, site: Site, shape: tuple[int, ...]) -> ir.Value:
    """Rows of the positions' table (B or 1, S, H)."""
    given = site.optional("position_ids")
    if given is None:
        given = op.const(np.arange(shape[1], dtype=np.int32)[None], name="positions")
    else:
        dims = site.shape(given, "position_ids")
        site.require(dims in {shape, (1, shape[1])}, f"position_ids {dims} do not fit ids {shape}")
    return op.Gather(site.input("position_embedding"), given, axis=0)


def _mask_index(op: Tape, site: Site, batch: int) -> ir.Value | None:
    mask = site.optional("mask")
    if not site.wants("mask_index"):
        return None
    if mask is None:
        zero, shape = op.const(np.int32(0), name="zero"), np.array([batch], np.int64)
        return op.Expand(zero, op.const(shape, name="batch"))
    ones = op.Cast(op.Equal(mask, op.const(1, mask.dtype, name="one")), to=ir.DataType.INT32)
    return op.ReduceSum(ones, axes(op, 1), keepdims=0)
