"""Kᵀ in written-out attentions: which keys it is made of, and how.

Transposed at once, also from rows (B, T, H, D); between two Reshapes that fold the heads into the
batch, as torch.onnx writes it where rank is not known; or given as Kᵀ.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.patterns import any_of, scaled, site_of
from rewriter.rules.parts.repeated_heads import before_repetition, repeated
from rewriter.site import Site
from rewriter.tape import Tape

_STRAIGHT = [0, 1, 2, 3]


def transposed_keys(op: Any) -> Any:
    """The pattern of Kᵀ; the keys, maybe repeated for their query heads, are bound to ``k``."""
    from onnxscript.rewriter.pattern import Var

    keys = scaled(op, repeated(op, "k"), "key factor")
    folded = op.Reshape(keys, Var("folded shape"), _outputs=["folded"])
    transposed = op.Transpose(folded, _outputs=["transposed rows"])
    return any_of(
        op.Reshape(transposed, Var("transposed shape"), _outputs=["unfolded"]),
        op.Transpose(keys, _outputs=["transposed"]),
        Var("columns"),
    )


def key_and_value(op: Tape, site: Site, query: ir.Value) -> tuple[ir.Value, ir.Value]:
    """K and V as (B, Hk, T, ·), before they are repeated.

    Args:
        op: the tape.
        site: a match that binds ``k``, ``v``, ``scores`` and what :func:`transposed_keys` binds.
        query: (B, Hq, S, D).
    """
    plain, perm = _keys(op, site)
    value = site.bound["v"]
    sources = [before_repetition(site, name) if name in site.bound else None for name in "kv"]
    key = plain
    if None not in sources and perm == _STRAIGHT:
        heads = {(dims_of(source) or ())[1] for source in sources if source is not None}
        if len(heads) == 1:
            key, value = (source for source in sources if source is not None)
    shapes = [dims_of(x) for x in (query, key, value, site.bound["scores"])]
    known = all(s is not None and len(s) == 4 and None not in s[1:] for s in shapes)
    site.require(known, "Q, K and V have to be of rank 4, all but their batch known")
    q, k, v, scores = (s for s in shapes if s is not None)
    grouped = k[1] in {1, q[1]} or key is not plain
    same = k[1:3] == v[1:3] and q[3] == k[3] and scores[1] == q[1] and grouped
    site.require(same, f"Q {q}, K {k} and V {v} do not fit together")
    batches = {str(x.shape[0]) for x in (query, key, value) if x.shape is not None}
    site.require(len(batches) == 1 and batches != {"None"}, f"batches {sorted(batches)} differ")
    return key, value


def _keys(op: Tape, site: Site) -> tuple[ir.Value, list[int]]:
    """K, and how the value that is bound to k becomes it."""
    if "columns" in site.bound:
        return op.Transpose(site.bound["columns"], perm=[0, 1, 3, 2]), []
    keys = site.bound["k"]
    if "unfolded" in site.bound:
        flat, unfolded = dims_of(site.bound["folded"]), dims_of(site.bound["unfolded"])
        for name in ("folded", "unfolded"):
            site_of(site, site.bound[name]).ignore("allowzero")  # the shapes are looked at
        given = dims_of(keys) or (None,)
        rows = list(site_of(site, site.bound["transposed rows"]).attribute("perm") or ())
        heads = None if None in given[1:-2] else math.prod(d for d in given[1:-2] if d is not None)
        plain = rows == [0, 2, 1] and flat is not None and flat[1:] == given[-2:]
        plain = plain and None not in given and unfolded == (given[0], heads, given[-1], given[-2])
        site.require(plain, "K is not simply transposed")
        return keys, _STRAIGHT
    perm = list(site_of(site, site.bound["transposed"]).attribute("perm") or (3, 2, 1, 0))
    site.require(len(perm) == 4, "K has to be of rank 4")
    perm = [perm[0], perm[1], perm[3], perm[2]]
    return (keys if perm == _STRAIGHT else op.Transpose(keys, perm=perm)), perm
