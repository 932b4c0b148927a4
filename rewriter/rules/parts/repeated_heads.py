"""Key heads that are repeated for the query heads that share them, as exporters write it.

(B, Hk, T, D) -> Unsqueeze at 2 -> Expand to (B, Hk, G, T, D) -> Reshape to (B, Hk·G, T, D): head h
is key head h // G, which is what an Attention with fewer key heads means. Another axis would
tile the heads (h % Hk), which no Attention does (D04 of the public reports).
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.patterns import any_of, integers, site_of
from rewriter.site import Site


def repeated(op: Any, name: str) -> Any:
    """Heads that may be repeated; the value itself is bound to ``name``.

    Where another Reshape follows, exporters leave out that to (B, Hk·G, T, D).
    """
    from onnxscript.rewriter.pattern import Var

    source, axis, sizes, shape = (
        Var(f"{name} {part}") for part in ("heads", "axis", "sizes", "shape")
    )
    groups = op.Expand(op.Unsqueeze(source, axis), sizes, _outputs=[f"{name} groups"])
    whole = op.Reshape(groups, shape, _outputs=[f"{name} whole"])
    return any_of(whole, groups, Var(f"{name} itself"), name=name)


def before_repetition(site: Site, name: str) -> ir.Value | None:
    """The heads before they are repeated; none if they are not, or in another order."""
    if f"{name} groups" not in site.bound:
        return None
    groups, source = site.bound[f"{name} groups"], site.bound[f"{name} heads"]
    given, spread, merged = (dims_of(value) for value in (source, groups, site.bound[name]))
    if given is None or spread is None or merged is None or None in (*given[1:], *spread[1:]):
        return None
    if integers(site, f"{name} axis") not in [[2], [-3]] or len(given) != 4 or len(spread) != 5:
        return None
    batch, heads, rows, size = given
    if spread != (batch, heads, spread[2], rows, size) or spread[2] is None or heads is None:
        return None
    if f"{name} whole" in site.bound:
        site_of(site, site.bound[name]).ignore("allowzero")  # the shape is looked at
        return source if merged == (batch, heads * spread[2], rows, size) else None
    return source
