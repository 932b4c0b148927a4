"""A scaled dot-product attention that is written out, raised to ai.onnx Attention.

softmax(cap·tanh(c·Q·Kᵀ / cap) + mask)·V, all of rank 4, becomes one node where it is the same
function: the factors are numbers, the Softmax is over the keys, no score is used by anything else
or left out of the graph's outputs. Keys and values that are repeated for their query heads
(h // G) go in as they are before; a tiled order stays outside.

The mask is added as it was (:mod:`rewriter.rules.parts.fused_masks` has what is refused), and
torch's guard Where(IsNaN(p), 0, p) against rows that see no key is what Attention does anyway.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from rewriter.rule import fuses
from rewriter.rules.parts.fused_masks import added_mask, selected_mask
from rewriter.rules.parts.patterns import (
    any_of,
    either,
    factor,
    number,
    require_foreign,
    require_private,
    scaled,
    site_of,
    value_of,
)  # fmt: skip
from rewriter.rules.parts.repeated_heads import repeated
from rewriter.rules.parts.transposed_keys import key_and_value, transposed_keys
from rewriter.site import Site
from rewriter.tape import Tape


def _scores(op: Any) -> Any:
    """cap·tanh(c·Q·Kᵀ / cap), or without a cap."""
    from onnxscript.rewriter.pattern import Var

    columns = scaled(op, transposed_keys(op), "column factor")
    scores = op.MatMul(scaled(op, Var("q"), "query factor"), columns, _outputs=["scores"])
    product = scaled(op, scores, "score factor")
    bent = op.Tanh(scaled(op, product, "tanh factor"))
    return any_of(either(op.Mul, bent, number("cap")), product)


def _weights(op: Any) -> Any:
    """The softmax of the scores, masked, maybe in another type and guarded against NaN."""
    from onnxscript.rewriter.pattern import Var

    capped, hidden = _scores(op), number("hidden")
    masked = any_of(
        either(op.Add, capped, Var("mask")),
        op.Where(Var("seen"), capped, hidden),
        op.Where(Var("unseen"), hidden, capped),
        capped,
    )
    masked = any_of(op.Cast(masked, _outputs=["wide"]), masked)
    weights = op.Softmax(masked, _outputs=["weights"])
    cast = op.Cast(weights, _outputs=["narrow"])
    weights = any_of(op.Cast(cast, _outputs=["again"]), cast, weights)
    guarded = op.Where(op.IsNaN(weights, _outputs=["nan"]), number("zero"), weights)
    return any_of(guarded, weights)


def _pattern(op: Any) -> Any:
    return op.MatMul(_weights(op), repeated(op, "v"))


@fuses(
    "MatMul",
    pattern=_pattern,
    emits=("Attention", "Expand", "Max", "Transpose", "Where"),
    order=20,
    opset=23,
)
def attention(op: Tape, site: Site) -> ir.Value:
    """softmax(cap(c·Q·Kᵀ) + mask)·V as Attention(Q, K, V, mask)."""
    require_foreign(site)
    _check_path(site)
    query = site.bound["q"]
    types = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
    site.require(query.dtype in types, f"an Attention of {query.dtype} is not raised")
    precision = _precision(site, query.dtype)
    scale, cap = 1.0, 0.0
    for name in ("query", "key", "column", "score"):
        scale *= factor(site, f"{name} factor")
    if "cap" in site.bound:
        cap = value_of(site, "cap")
        scale *= factor(site, "tanh factor") * cap
        site.require(cap > 0, f"a softcap of {cap:g} is not positive")
    usable = scale > 0 and math.isfinite(scale)
    site.require(usable, f"scores scaled by {scale:g} have no Attention")
    mask = _mask(op, site)
    key, value = key_and_value(op, site, query)
    return op.emit(
        "Attention",
        (query, key, value, mask),
        {"scale": scale, "softcap": cap, "softmax_precision": precision},
    )[0]


def _check_path(site: Site) -> None:
    """Everything from the scores to the result is the pattern's own, and what it looks like."""
    inside = {site.node, *(other.node for other in site.others.values())}
    waiting, path = [site.bound["scores"]], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value not in path and value is not site.node.outputs[0]:
            path.add(value)
            waiting += [v for node in value.consumers() if node in inside for v in node.outputs]
    require_private(site, path)
    softmax = site_of(site, site.bound["weights"])
    site.require(softmax.integer("axis") in {-1, 3}, "the Softmax is not over the last axis")
    if "zero" in site.bound:
        replaced = value_of(site, "zero")
        site.require(replaced in {0.0}, f"a NaN becomes {replaced:g} instead of 0")


def _precision(site: Site, own: ir.DataType | None) -> int | None:
    """Type in which the Softmax is computed, if it is another one than that of the scores."""
    for name in {"wide", "narrow", "again"} & set(site.bound):
        cast = site_of(site, site.bound[name])
        cast.ignore("to", "saturate", "round_mode")  # the types that come out are looked at
    wide = site.bound["weights"].dtype
    narrow = site.bound["narrow"].dtype if "narrow" in site.bound else own
    site.require(narrow in {own, wide}, f"the weights are rounded to {narrow} between")
    if wide == own:
        return None
    site.require(wide == ir.DataType.FLOAT, f"the Softmax is computed in {wide}")
    return int(ir.DataType.FLOAT)


def _mask(op: Tape, site: Site) -> ir.Value | None:
    scores, guarded = site.bound["scores"], "zero" in site.bound
    if "mask" in site.bound:
        return added_mask(op, site, site.bound["mask"], scores, guarded=guarded)
    for name in ("seen", "unseen"):
        if name in site.bound:
            condition, hidden = site.bound[name], value_of(site, "hidden")
            seen = name == "seen"
            return selected_mask(op, site, condition, scores, hidden, seen=seen, guarded=guarded)
    return None
