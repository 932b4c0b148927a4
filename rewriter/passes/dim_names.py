"""What dims are called: by the model, by the place they stand at, by their role."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import onnx_ir as ir

from rewriter.errors import BadInput

ROLES: dict[str, tuple[str, int]] = {
    "batch": ("sequences in one call", 1),
    "seq": ("new tokens of one call: 1 to decode, more to read a prompt", 1),
    "past": ("length of the KV cache that comes in; 0 for none yet", 128),
    "total": ("length of the attention mask: past + seq, or past where the cache is a buffer", 129),
    "max": ("capacity of a cache that stays in place", 512),
}
"""What each role means, and a value to propose."""

DIMS = "rewriter.dims"
"""Key of the model's metadata that remembers the dims that were fixed."""

_PLACES: tuple[tuple[str, int, str], ...] = (
    (r"(input_ids|inputs_embeds|position_ids|token_type_ids)", 0, "batch"),
    (r"(input_ids|inputs_embeds|position_ids|token_type_ids)", 1, "seq"),
    (r"attention_mask", 0, "batch"),
    (r"attention_mask", 1, "total"),
    (r"past_key_values\.\d+\.(key|value)|past_(key|value)s?[._]\d+", 0, "batch"),
    (r"past_key_values\.\d+\.(key|value)|past_(key|value)s?[._]\d+", 2, "past"),
    (r"(key|value)_cache[._]\d+", 2, "max"),
)
_SYMBOLS = {
    "batch": {"batch", "batch_size", "N"},
    "seq": {"seq", "sequence_length", "seq_len", "seqlen", "sequence"},
    "past": {"past", "past_sequence_length", "past_seq_len", "past_length"},
    "total": {"total", "total_sequence_length", "total_seq_len", "total_length"},
    "max": {"max", "max_seq_len", "max_sequence_length", "max_length"},
}
_COMPUTING = frozenset({"batch", "seq", "total", "max"})
"""Roles whose dim is at least 1: with 0 there is nothing to compute (0 past is a first call)."""


def places_and_roles(model: ir.Model) -> tuple[dict[str, list[tuple[str, int]]], dict[str, str]]:
    """Where each symbol stands, and the role it has in a transformer, if any.

    Symbols that cannot be reckoned with get a name that can; see :func:`_reckonable`.
    """
    for graph in model.graphs():
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
            _name_dims(value, unnamed=value.is_graph_input())
    places = _places(model)
    return places, _roles(places)


def _name_dims(value: ir.Value, *, unnamed: bool) -> None:
    """Give each dim of a value a name that shape inference can parse."""
    if value.shape is None:
        return
    dims: list[int | str | None] = []
    for axis, dim in enumerate(value.shape):
        if isinstance(dim, int):
            dims.append(dim)
        elif dim.value:
            dims.append(_reckonable(dim.value))
        else:
            dims.append(_reckonable(f"{value.name}:{axis}") if unnamed else None)
    if dims != [dim if isinstance(dim, int) else dim.value for dim in value.shape]:
        value.shape = ir.Shape(dims)


def _reckonable(symbol: str) -> str:
    """A symbol as it is, if it is an expression; else with ``_`` for what is no letter or digit."""
    try:
        ir.SymbolicDim(symbol).free_symbols()
    except ValueError:
        return re.sub(r"^(?=\d)|\W", "_", symbol)
    return symbol


def _places(model: ir.Model) -> dict[str, list[tuple[str, int]]]:
    """Symbol to the (input, axis) where it stands."""
    found: dict[str, list[tuple[str, int]]] = {}
    for value in model.graph.inputs:
        if value.is_initializer():
            continue
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int):
                found.setdefault(str(dim), []).append((value.name or "", axis))
    return found


def _roles(places: Mapping[str, list[tuple[str, int]]]) -> dict[str, str]:
    """Symbol to role, by where it stands, else by what it is called."""
    roles: dict[str, str] = {}
    for symbol, where in places.items():
        by_place = {role for name, axis in where if (role := role_at(name, axis))}
        role = role_called(symbol) or (by_place.pop() if len(by_place) == 1 else "")
        if role:
            roles[symbol] = role
    return roles


def role_at(name: str, axis: int) -> str:
    """The role of a place, or nothing."""
    matches = (r for pattern, at, r in _PLACES if axis == at and re.fullmatch(pattern, name))
    return next(matches, "")


def role_called(symbol: str) -> str:
    """The role that a symbol's name says, or nothing."""
    return next((role for role, names in _SYMBOLS.items() if symbol in names), "")


def plain(name: str) -> str:
    """A name as it is compared: blanks around ``+`` mean nothing."""
    return "+".join(_reckonable(part.strip()) for part in name.split("+"))


def resolve(
    model: ir.Model,
    asked: Mapping[str, int],
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> dict[str, int]:
    """Values by symbol, from values by symbol, place or role.

    Raises:
        BadInput: there is no such dim, it has another value already, or the value makes no sense.
    """
    fixed: dict[str, int] = {}
    for name, value in asked.items():
        if value < 0:
            raise BadInput(f"--dim {name}={value}: a dim is 0 or more")
        symbols = [s for s in places if plain(s) == plain(name)]
        symbols = symbols or [s for s, role in roles.items() if role == name]
        symbols += [s for s, where in places.items() if name in {f"{n}:{a}" for n, a in where}]
        for symbol in symbols:
            if fixed.setdefault(symbol, value) != value:
                raise BadInput(
                    f"--dim {name}={value}: {symbol} is {fixed[symbol]} by another --dim; give "
                    "it once"
                )
            if value == 0 and roles.get(symbol) in _COMPUTING:
                raise BadInput(f"--dim {name}=0: {roles[symbol]} is 1 or more")
        if not symbols:
            _check_static(model, name, value, places, roles)
    return fixed


def is_dim(model: ir.Model, name: str) -> bool:
    """Whether a model has a dim of that name, free or fixed."""
    places, roles = places_and_roles(model)
    places_of = {f"{n}:{a}" for where in places.values() for n, a in where}
    free = {plain(symbol) for symbol in places} | set(roles.values()) | places_of
    return plain(name) in free or name in free or name in _static(model)


def _check_static(
    model: ir.Model,
    name: str,
    value: int,
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> None:
    """A dim that is a number already may be given again, but not another value."""
    known = _static(model)
    if name not in known:
        names = [s + (f" ({roles[s]})" if roles.get(s, s) != s else "") for s in places]
        raise BadInput(
            f"--dim {name}: the model has no such dim; "
            + (f"its dims are {', '.join(names)}" if names else "all its dims are fixed")
        )
    if known[name] != value:
        raise BadInput(f"--dim {name}={value}: this model has it fixed at {known[name]}")


def _static(model: ir.Model) -> dict[str, int]:
    """Dims that are numbers, by every name that they may be asked for."""
    known = remembered(model)
    for symbol, value in list(known.items()):
        known.setdefault(plain(symbol), value)
        if role := role_called(symbol):
            known.setdefault(role, value)
    for graph_input in model.graph.inputs:
        for axis, dim in enumerate(graph_input.shape or ()):
            if isinstance(dim, int):
                known.setdefault(f"{graph_input.name}:{axis}", dim)
                known.setdefault(role_at(graph_input.name or "", axis), dim)
    known.pop("", None)
    return known


def remembered(model: ir.Model) -> dict[str, int]:
    """Dims that an earlier run fixed; nothing if what is stored is not of ours."""
    try:
        stored = json.loads(model.metadata_props.get(DIMS, "{}"))
    except (ValueError, RecursionError):
        return {}
    pairs = stored.items() if isinstance(stored, dict) else ()
    return {name: value for name, value in pairs if type(value) is int}
