"""The standard's Attention (opsets 23 to 25) to primitives.

Y = softmax(softcap·tanh(scale·Q·Kᵀ / softcap) + bias)·V, where K and V follow the past rows and
query head h uses key head h // G. Semantics are those of onnx 1.23 and ONNX Runtime 1.32: query i
stands at position p = offset + i, the offset being the rows of the past, or nonpad_kv_seqlen - S
of each sequence, or 0 (onnx #8068); it sees keys p - left_window_size to p + right_window_size,
none after p if causal, none from nonpad_kv_seqlen on. A row that sees nothing gives 0;
one that a number of the mask hides is in :mod:`rewriter.rules.parts.attention_bias`.

softmax_precision: what is narrower than float is honoured; double is computed in float, which
differs by less than the rounding of the result. qk_matmul_output: the scaled product (0), after
the softcap (1), with the bias (2), the weights (3). With the bias, the score of a hidden key is
-inf, as in the standard; ONNX Runtime's kernel gives the lowest float. The softmax gets a finite
bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import attention, attention_bias, attention_inputs
from rewriter.site import Site
from rewriter.tape import Tape

_RAW, _BIASED, _WEIGHTS = 0, 2, 3


def _softmax(op: Tape, site: Site, x: ir.Value) -> ir.Value:
    """Weights in the type of the scores, computed in the precision that is asked for."""
    asked = site.attribute("softmax_precision")
    own = x.dtype
    wanted = own if asked is None else ir.DataType(asked)
    if wanted == own:
        return op.Softmax(x, axis=-1)
    if wanted == ir.DataType.DOUBLE:
        wanted = ir.DataType.FLOAT
    allowed = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    site.require(wanted in allowed, f"softmax_precision={asked} ({wanted}) is not handled")
    wide = op.Softmax(x if wanted == own else op.Cast(x, to=wanted), axis=-1)
    return wide if wanted == own else op.Cast(wide, to=own)


@lowers(
    "Attention",
    emits=(
        "Add", "And", "Cast", "Concat", "Expand", "Greater", "LessOrEqual", "MatMul", "Max",
        "Mul", "ReduceMax", "Reshape", "Softmax", "Sub", "Tanh", "Transpose", "Unsqueeze", "Where",
    ),
    opset=18,
)  # fmt: skip
def scaled_products(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """Softmax(cap(scale·Q·Kᵀ) + bias)·V with rank-4 products, heads folded into rows."""
    found = attention_inputs.read_heads(op, site)
    scale = site.number("scale", 1 / math.sqrt(attention.sizes(found.query)[3]))
    site.require(scale > 0, f"scale={scale} is not positive")
    mode = site.integer("qk_matmul_output_mode")
    site.require(mode in range(4), f"qk_matmul_output_mode={mode} is not defined")
    wanted = mode if site.wants("qk_matmul_output") else None
    cap = max(site.number("softcap"), 0.0)  # at or below 0 there is none
    sight, mask = attention_inputs.read_sight(site, found), attention_inputs.read_mask(site, found)
    bias = attention_bias.bias(op, mask, sight, found.groups, found.dtype)

    product = attention.scores(op, found.query, found.key, scale / (cap or 1))
    raw = capped = product
    if cap:
        limit = op.const(cap, found.dtype, name="softcap")
        capped = op.Mul(op.Tanh(product), limit)
        raw = op.Mul(product, limit) if wanted == _RAW else product
    scored = capped if bias.scored is None else op.Mul(capped, bias.scored)
    biased = scored if bias.added is None else op.Add(scored, bias.added)
    with_bias = biased
    if wanted == _BIASED and bias.added is not None:
        exact = attention_bias.bias(op, mask, sight, found.groups, found.dtype, exact=True)
        with_bias = op.Add(capped, exact.added)
    weights = _softmax(op, site, biased)
    if bias.alive is not None and wanted == _WEIGHTS:
        weights = op.Mul(weights, bias.alive)
    y = op.MatMul(weights, found.value)
    if bias.alive is not None and wanted != _WEIGHTS:
        y = op.Mul(y, bias.alive)
    y = attention.by_heads(op, y, found.heads)
    shown = None if wanted is None else (raw, capped, with_bias, weights)[wanted]
    return (
        attention.from_heads(op, y) if found.flat else y,
        found.key,
        found.value,
        None if shown is None else attention.by_heads(op, shown, found.heads),
    )
