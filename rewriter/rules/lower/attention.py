"""ai.onnx Attention (opsets 23 to 25) to primitives.

Y = softmax(softcap·tanh(scale·Q·Kᵀ / softcap) + bias)·V, where K and V follow the past rows and
query head h uses key head h // G. Semantics are those of onnx 1.23 and ONNX Runtime 1.32: query i
stands at position p = offset + i, the offset being the rows of the past, or nonpad_kv_seqlen - S
for each sequence, or 0 (onnx #8068); it sees keys p - left_window_size to p + right_window_size,
none after p if causal, none from nonpad_kv_seqlen on. A row that sees nothing gives 0.

softmax_precision: float16 and float are honoured; double is computed in float, which is within
the rounding of the result, as ONNX Runtime does. qk_matmul_output: the scaled product, that after
the softcap, that with the bias, or the weights. With the bias, a hidden key is MASKED or less:
the standard says -inf, ONNX Runtime gives the lowest float, fp16 devices have neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from rewriter.facts import dims_of
from rewriter.rule import lowers
from rewriter.rules.parts import attention, masks
from rewriter.site import Site
from rewriter.tape import Tape

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
_RAW, _WEIGHTS = 0, 3


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Query (B, Hq, S, D), all keys (B, Hk, T, D) and values (B, Hk, T, Dv), and the past rows."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    past: int
    rank: int

    @property
    def heads(self) -> int:
        return attention.sizes(self.query)[1]

    @property
    def kv_heads(self) -> int:
        return attention.sizes(self.key)[1]

    @property
    def tokens(self) -> int:
        return attention.sizes(self.query)[2]

    @property
    def keys(self) -> int:
        return attention.sizes(self.key)[2]

    @property
    def dtype(self) -> ir.DataType:
        assert self.query.dtype is not None
        return self.query.dtype


def _read(site: Site, name: str) -> ir.Value | None:
    """An input with every dim fixed but the batch."""
    value = site.optional(name)
    if value is not None:
        site.rank(value, name)
        known = dims_of(value) or ()
        site.require(None not in known[1:], f"{name} has a dim that is not fixed: {value.shape}")
    return value


def _heads(op: Tape, site: Site, name: str, attribute: str) -> ir.Value:
    """Q, K or V as (B, H, ·, ·); at rank 3 the heads come from an attribute."""
    site.input(name)
    x = _read(site, name)
    assert x is not None
    dims, heads = attention.sizes(x), site.attribute(attribute)
    site.require(len(dims) in {3, 4}, f"{name} has rank {len(dims)}, not 3 or 4")
    if len(dims) == 4:
        same = heads in {None, dims[1]}
        site.require(same, f"{attribute}={heads}, and {name} has {dims[1]} heads")
        return x
    site.require(bool(heads), f"{name} has rank 3, and attribute {attribute} is missing")
    site.require(dims[2] % heads == 0, f"{dims[2]} features of {name} do not divide by {heads}")
    return attention.to_heads(op, x, heads)


def _with_past(op: Tape, site: Site, name: str, new: ir.Value) -> ir.Value:
    """All rows: an absent or empty past makes no node."""
    past = _read(site, name)
    if past is None or attention.sizes(past)[2] == 0:
        return new
    return op.Concat(past, new, axis=2)


def _tensors(op: Tape, site: Site) -> _Tensors:
    query = _heads(op, site, "Q", "q_num_heads")
    new_key, new_value = (_heads(op, site, name, "kv_num_heads") for name in ("K", "V"))
    site.require(
        new_key.dtype == new_value.dtype == query.dtype,
        f"Q, K and V are {query.dtype}, {new_key.dtype} and {new_value.dtype}, not of one type",
    )
    ranks = {len(site.input(name).shape or ()) for name in ("Q", "K", "V")}
    site.require(len(ranks) == 1, "Q, K and V are not of one rank")
    given = [name for name in ("past_key", "past_value") if site.optional(name) is not None]
    site.require(len(given) != 1, "past_key and past_value have to be given both, or neither")
    key, value = (
        _with_past(op, site, "past_key", new_key),
        _with_past(op, site, "past_value", new_value),
    )
    past = attention.sizes(key)[2] - attention.sizes(new_key)[2]
    found = _Tensors(query, key, value, past, ranks.pop())
    (_, heads, _, size), (_, kv_heads, keys, key_size) = map(attention.sizes, (query, key))
    site.require(heads % kv_heads == 0, f"{heads} query heads do not divide by {kv_heads}")
    site.require(size == key_size, f"heads of Q and K have {size} and {key_size} features")
    rows = attention.sizes(value)[1:3]
    site.require(rows == (kv_heads, keys), f"K has {kv_heads} heads of {keys} rows, V {rows}")
    return found


def _sight(site: Site, found: _Tensors) -> masks.Sight:
    causal = site.integer("is_causal")
    site.require(causal in {0, 1}, f"is_causal={causal} is not defined")
    bounds = []
    for name in ("left_window_size", "right_window_size"):
        bounds.append(site.integer(name, -1))
        site.require(bounds[-1] >= -1, f"{name}={bounds[-1]} is not defined")
    nonpad = site.optional("nonpad_kv_seqlen")
    with_past = site.optional("past_key") is not None
    site.require(
        nonpad is None or not with_past, "nonpad_kv_seqlen together with past_key is not defined"
    )
    left, right = bounds
    return masks.Sight(found.tokens, found.keys, found.past, nonpad, left, 0 if causal else right)


def _mask(site: Site, found: _Tensors) -> ir.Value | None:
    """attn_mask, whose dims broadcast to (B, Hq, S, up to T)."""
    mask = _read(site, "attn_mask")
    if mask is None:
        return None
    dims = attention.sizes(mask)
    full = (attention.sizes(found.query)[0], found.heads, found.tokens, found.keys)
    fits = (
        1 <= len(dims) <= 4
        and 1 <= dims[-1] <= full[-1]
        and all(
            mine in {0, 1, theirs} or theirs == 0
            for mine, theirs in zip(reversed(dims[:-1]), reversed(full[:-1]), strict=False)
        )
    )
    site.require(fits, f"attn_mask {mask.shape} does not fit scores {full}")
    return mask


def _softmax(op: Tape, site: Site, x: ir.Value) -> ir.Value:
    """Weights in the type of the scores, computed in the precision that is asked for."""
    asked = site.attribute("softmax_precision")
    own = x.dtype
    wanted = own if asked is None else ir.DataType(asked)
    if wanted == own:
        return op.Softmax(x, axis=-1)
    if wanted == _DOUBLE:
        wanted = _FLOAT
    allowed = wanted in {_FLOAT, ir.DataType.FLOAT16}
    site.require(allowed, f"softmax_precision={asked} ({wanted}) is not handled")
    wide = op.Softmax(x if wanted == own else op.Cast(x, to=wanted), axis=-1)
    return wide if wanted == own else op.Cast(wide, to=own)


@lowers(
    "Attention",
    emits=(
        "Add", "And", "Cast", "Concat", "Expand", "Greater", "LessOrEqual", "MatMul", "Max",
        "Mul", "ReduceMax", "Reshape", "Softmax", "Tanh", "Transpose", "Unsqueeze", "Where",
    ),
    opset=18,
)  # fmt: skip
def scaled_products(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """Softmax(cap(scale·Q·Kᵀ) + bias)·V with rank-4 products, heads folded into rows."""
    found = _tensors(op, site)
    scale = site.number("scale", 1 / math.sqrt(attention.sizes(found.query)[3]))
    site.require(scale > 0, f"scale={scale} is not positive")
    mode = site.integer("qk_matmul_output_mode")
    site.require(mode in range(4), f"qk_matmul_output_mode={mode} is not defined")
    cap = max(site.number("softcap"), 0.0)  # at or below 0 there is none
    sight, mask = _sight(site, found), _mask(site, found)
    bias = masks.bias(op, mask, sight, found.heads // found.kv_heads, found.dtype)

    wanted = mode if site.wants("qk_matmul_output") else None
    product = attention.scores(op, found.query, found.key, scale / (cap or 1))
    raw = capped = product
    if cap:
        limit = op.const(cap, found.dtype, name="softcap")
        capped = op.Mul(op.Tanh(product), limit)
        raw = op.Mul(product, limit) if wanted == _RAW else product
    biased = capped if bias.added is None else op.Add(capped, bias.added)
    weights = _softmax(op, site, biased)
    if bias.alive is not None and wanted == _WEIGHTS:
        weights = op.Mul(weights, bias.alive)
    y = op.MatMul(weights, found.value)
    if bias.alive is not None and wanted != _WEIGHTS:
        y = op.Mul(y, bias.alive)
    y = attention.by_heads(op, y, found.heads)
    shown = None if wanted is None else (raw, capped, biased, weights)[wanted]
    return (
        attention.from_heads(op, y) if found.rank == 3 else y,
        found.key,
        found.value,
        None if shown is None else attention.by_heads(op, shown, found.heads),
    )
