"""What an ai.onnx Attention node is given, read and checked: heads, past rows, sight, mask."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.attention import sizes, to_heads
from rewriter.rules.parts.sight import Sight
from rewriter.site import Site
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Heads:
    """Query (B, Hq, S, D), all keys (B, Hk, T, D) and all values (B, Hk, T, Dv).

    Attributes:
        query: the new tokens.
        key: past rows, then new ones.
        value: the same.
        past: how many rows are past ones.
        flat: the node's own tensors have rank 3.
    """

    query: ir.Value
    key: ir.Value
    value: ir.Value
    past: int
    flat: bool

    @property
    def heads(self) -> int:
        """Hq."""
        return sizes(self.query)[1]

    @property
    def groups(self) -> int:
        """G."""
        return self.heads // sizes(self.key)[1]

    @property
    def tokens(self) -> int:
        """S."""
        return sizes(self.query)[2]

    @property
    def keys(self) -> int:
        """T."""
        return sizes(self.key)[2]

    @property
    def dtype(self) -> ir.DataType:
        """Of all of them."""
        assert self.query.dtype is not None
        return self.query.dtype


def read_heads(op: Tape, site: Site) -> Heads:
    """Q, K and V split into heads, and the rows that K and V have with their past."""
    query = _split(op, site, "Q", "q_num_heads")
    key, value = (_split(op, site, name, "kv_num_heads") for name in ("K", "V"))
    types = [str(x.dtype) for x in (query, key, value)]
    listed = ", ".join(types)
    site.require(len(set(types)) == 1, f"Q, K and V are of the types {listed}, not of one")
    (_, heads, _, size), (_, kv_heads, rows, key_size) = sizes(query), sizes(key)
    site.require(heads % kv_heads == 0, f"{heads} query heads do not divide by {kv_heads}")
    site.require(size == key_size, f"heads of Q and K have {size} and {key_size} features")
    other = sizes(value)[1:3]
    same = other == (kv_heads, rows)
    site.require(
        same, f"K and V have {kv_heads} and {other[0]} heads of {rows} and {other[1]} rows"
    )
    past = [_fixed(site, name) for name in ("past_key", "past_value")]
    one = (past[0] is None) != (past[1] is None)
    site.require(not one, "past_key and past_value have to be given both, or neither")
    key, value = (
        _after(op, site, name, old, new)
        for name, old, new in zip(("past_key", "past_value"), past, (key, value), strict=True)
    )
    flat = site.rank(site.input("Q"), "Q") == 3
    return Heads(query, key, value, sizes(key)[2] - rows, flat)


def read_sight(site: Site, found: Heads) -> Sight:
    """What positions and lengths hide."""
    causal = site.integer("is_causal")
    site.require(causal in {0, 1}, f"is_causal={causal} is not defined")
    names = ("left_window_size", "right_window_size")
    left, right = (site.integer(name, -1) for name in names)
    for name, bound in zip(names, (left, right), strict=True):
        site.require(bound >= -1, f"{name}={bound} is not defined")
    nonpad = site.optional("nonpad_kv_seqlen")
    both = nonpad is not None and site.optional("past_key") is not None
    site.require(not both, "nonpad_kv_seqlen together with past_key is not defined")
    return Sight(found.tokens, found.keys, found.past, nonpad, left, 0 if causal else right)


def read_mask(site: Site, found: Heads) -> ir.Value | None:
    """attn_mask, whose dims broadcast to (B, Hq, S, up to T)."""
    mask = _fixed(site, "attn_mask")
    if mask is None:
        return None
    dims = sizes(mask)
    full = (sizes(found.query)[0], found.heads, found.tokens, found.keys)
    pairs = zip(reversed(dims[:-1]), reversed(full[:-1]), strict=False)
    fits = len(dims) in range(1, 5) and 1 <= dims[-1] <= found.keys
    fits = fits and all(mine in {1, theirs} or 0 in {mine, theirs} for mine, theirs in pairs)
    site.require(fits, f"attn_mask {mask.shape} does not fit scores {full}")
    fixed = dims[0] != 0 or (len(dims) == 4 and dims[-1] == found.keys)
    site.require(fixed, f"attn_mask has a dim that is not fixed: {mask.shape}")
    return mask


def _fixed(site: Site, name: str) -> ir.Value | None:
    """An input with every dim fixed but the first."""
    value = site.optional(name)
    if value is not None:
        site.rank(value, name)
        known = dims_of(value) or ()
        site.require(None not in known[1:], f"{name} has a dim that is not fixed: {value.shape}")
    return value


def _split(op: Tape, site: Site, name: str, attribute: str) -> ir.Value:
    """Q, K or V as (B, H, ·, ·); at rank 3 an attribute has the heads."""
    x = _fixed(site, name) or site.input(name)
    dims, heads = sizes(x), site.attribute(attribute)
    rank = site.rank(site.input("Q"), "Q")
    site.require(len(dims) in {3, 4}, f"{name} has rank {len(dims)}, not 3 or 4")
    site.require(len(dims) == rank, f"{name} has rank {len(dims)}, and Q {rank}")
    site.require(0 not in dims[1:], f"{name} is empty: {x.shape}")
    if rank == 4:
        same = heads in {None, dims[1]}
        site.require(same, f"{attribute}={heads}, and {name} has {dims[1]} heads")
        return x
    site.require(bool(heads), f"{name} has rank 3, and attribute {attribute} is missing")
    site.require(dims[2] % heads == 0, f"{dims[2]} features of {name} do not divide by {heads}")
    return to_heads(op, x, heads)


def _after(op: Tape, site: Site, name: str, past: ir.Value | None, new: ir.Value) -> ir.Value:
    """Past and new rows; a past that is absent or empty makes no node."""
    if past is None:
        return new
    old, fresh = sizes(past), sizes(new)
    fits = len(old) == 4 and (old[1], old[3]) == (fresh[1], fresh[3])
    site.require(fits, f"{name} {past.shape} does not fit rows {new.shape}")
    return op.Concat(past, new, axis=2) if old[2] else new
