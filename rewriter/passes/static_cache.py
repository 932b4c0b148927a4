"""Growing caches get a fixed size, in place; how the caches of a graph are laid out.

GroupQueryAttention and TensorScatter write into a buffer, and need nothing here. Where past and
new rows are put together (Concat, Attention, MultiHeadAttention), the present is cut to its newest
rows, as many as the past has, and the attention mask hides the rows in front that are not filled.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.cache_layout import Alignment, CacheLayout, cache_layout
from rewriter.nodes import dims_of
from rewriter.passes.added_mask import add_mask, lacks_mask
from rewriter.passes.caches import Cache, NoCache, caches
from rewriter.passes.dim_fit import windows
from rewriter.passes.finite_masks import keep_finite
from rewriter.passes.fix_dims import Dims, fix_dims
from rewriter.passes.hidden_rows import HiddenRows
from rewriter.passes.length_branches import require_one_branch
from rewriter.passes.several_sequences import count_tokens
from rewriter.passes.state_columns import require_no_padded_state
from rewriter.passes.stored import stored
from rewriter.phases import Phase


def fix_phase(model: ir.Model, phase: Phase) -> Dims:
    """Make a model, in place, what a phase asks for: caches, dims, and the note on its layout.

    Raises:
        BadInput: as :func:`~rewriter.passes.fix_dims.fix_dims`, or a fixed size is not right for
            every text.
    """
    if phase.alignment is not None:
        require_one_branch(model, phase)
        require_no_padded_state(model, phase)
    growing = caches(model) if phase.alignment == "right" else []
    bare = lacks_mask(model, growing)
    masks = [] if bare else list(HiddenRows(model, growing).masks())
    for cache in growing:
        _cut(model, cache, phase)
    dims = fix_dims(model, phase.dims)
    if growing and bare:
        add_mask(model, growing, phase.dims["seq"])
    for masked in masks:
        keep_finite(model, masked)
    if phase.alignment == "left":
        count_tokens(model)
    layout = layout_of(model, phase)
    if layout is not None:
        layout.note(model)
    return dims


def layout_of(model: ir.Model, phase: Phase) -> CacheLayout | None:
    """How the caches of a graph are laid out; nothing if it has none, or none that are known.

    Args:
        model: with its dims fixed, before it is lowered (or after, with the note it then has).
        phase: that it is.
    """
    noted = cache_layout(model, "the model")
    if noted is not None and noted.alignment == "right" and phase.alignment is None:
        return noted  # an output of ours, written out as it is
    try:
        found = caches(model)
    except NoCache:
        return None
    if not found:
        return None
    windowed = {name: rows for name, (_, rows) in windows(model).items()}
    return CacheLayout(phase.alignment or _alignment(model, found), windowed)


def _alignment(model: ir.Model, found: list[Cache]) -> Alignment:
    """Of a graph whose dims somebody else chose."""
    if any(cache.kind == "growing" for cache in found):
        return "growing"
    if all(cache.kind == "scattered" for cache in found):
        return "left"
    mask = next((v for v in model.graph.inputs if v.name == "attention_mask"), None)
    total = None if mask is None else (dims_of(mask) or (None,))[-1]
    held = set(windows(model))
    rows = [(dims_of(c.past) or (None,) * 4)[2] for c in found if c.name not in held]
    fixed = total is not None and all(r is not None and r >= total for r in rows)
    return "left" if fixed and rows else "growing"


def _cut(model: ir.Model, cache: Cache, phase: Phase) -> None:
    """The present without its oldest rows: as many as there are new ones."""
    grown, producer = cache.present, None if cache.present is None else cache.present.producer()
    assert grown is not None
    assert producer is not None
    new, rows, name = phase.dims["seq"], phase.dims["past"], grown.name or ""
    grown.name = f"{name}/grown"
    bounds = [
        stored(model, f"static_cache/{what}", np.array([at], np.int64))
        for what, at in (("first", new), ("end", rows + new), ("axis", 2))
    ]
    node = ir.Node("", "Slice", [grown, *bounds], num_outputs=1, name=f"{name}/newest")
    kept = node.outputs[0]
    kept.name, kept.type, kept.doc_string = name, grown.type, grown.doc_string
    kept.shape = None if cache.past.shape is None else ir.Shape(list(cache.past.shape))
    kept.metadata_props.update(grown.metadata_props)
    grown.shape = None  # inferred anew from what the dims are fixed at
    model.graph.insert_after(producer, node)
    outputs = model.graph.outputs
    outputs[outputs.index(grown)] = kept
