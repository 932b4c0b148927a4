"""An If that chooses by the length of the text takes one branch for good where sizes are fixed.

LongRoPE exporters read one of two rotary tables by the total length. In a cache of fixed size the
length is that of the cache, so a text that is shorter would get the tables of a long one.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.passes.fix_dims import fix_dims
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.phases import Phase


def require_one_branch(model: ir.Model, phase: Phase) -> None:
    """Stop where the branch at the size of the cache is not that of every shorter text.

    Args:
        model: before its dims are fixed; it is not changed.
        phase: with a cache of fixed size.

    Raises:
        BadInput: it is not; the message says up to which size it would be.
    """
    if not any(node.op_type == "If" for graph in model.graphs() for node in graph):
        return
    rows = phase.dims.get("past", phase.dims.get("max", 0))
    least = 1 if phase.alignment == "right" else phase.dims.get("seq", 1)
    short = _branches(model, phase, least)
    taken = _branches(model, phase, rows)
    if short == taken:
        return
    good, bad = least, rows
    while bad - good > 1:
        middle = (good + bad) // 2
        if _branches(model, phase, middle) == short:
            good = middle
        else:
            bad = middle
    chosen = next(note for note in taken if note not in short).partition(" with ")[0]
    raise BadInput(
        f"--static: in a cache of {rows} rows {chosen}, where a shorter text takes the other one "
        f"(LongRoPE has tables for long and for short texts); give --max-seq-len {good} or less"
    )


def _branches(model: ir.Model, phase: Phase, rows: int) -> list[str]:
    """Which branches are taken with a cache of so many rows."""
    total = rows + phase.dims.get("seq", 0) if phase.alignment == "right" else rows
    sizes = {"past": rows, "max": rows, "total": total}
    copy = model.clone()
    fix_dims(copy, {name: sizes.get(name, value) for name, value in phase.dims.items()})
    return settle_shapes(copy)
