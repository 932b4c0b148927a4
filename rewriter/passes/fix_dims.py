"""Every symbolic dim becomes a number: asked for, derived, or listed as free.

A dim is named by the model's own symbol, by the input and axis it stands at (``input_ids:1``), or
by its role in a transformer (:data:`ROLES`). What weights, attributes and other dims determine is
derived: ``a + b`` symbols, the attention mask's length, the head size of a cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.facts import op_of
from rewriter.shapes import infer_model

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
_SUM = re.compile(r"\s*([^+\s]+)\s*\+\s*([^+\s]+)\s*")


@dataclass(frozen=True, slots=True)
class FreeDim:
    """A dim that nobody gave and nothing determines."""

    name: str
    where: str
    meaning: str
    proposal: int


@dataclass
class Dims:
    """What became of the dims.

    Attributes:
        fixed: symbol to value, as asked for.
        derived: symbol to (value, from what).
        free: what is left.
    """

    fixed: dict[str, int] = field(default_factory=dict)
    derived: dict[str, tuple[int, str]] = field(default_factory=dict)
    free: list[FreeDim] = field(default_factory=list)

    def values(self) -> dict[str, int]:
        """Every symbol that has a value."""
        return self.fixed | {name: value for name, (value, _) in self.derived.items()}


def fix_dims(model: ir.Model, asked: Mapping[str, int]) -> Dims:
    """Set the dims of a model in place, and infer all shapes from them.

    Args:
        model: a model whose inputs may have symbolic dims.
        asked: values by symbol, place or role.

    Raises:
        BadInput: a name that is no dim of the model, or two values for one dim.
    """
    places, roles = places_and_roles(model)
    dims = Dims(_resolve(model, asked, places, roles))
    if not places:
        infer_model(model)
        return dims
    _derive_sums(model, dims, roles)
    _apply(model, dims.values())
    infer_model(model)
    if _derive_heads(model, dims):
        _apply(model, dims.values())
        infer_model(model)
    known = dims.values()
    dims.free = [
        _free(symbol, where, roles) for symbol, where in places.items() if symbol not in known
    ]
    if known:
        remembered = {**_remembered(model), **known}
        model.metadata_props[DIMS] = ",".join(f"{k}={v}" for k, v in sorted(remembered.items()))
    return dims


# -- names ---------------------------------------------------------------------------------------


def places_and_roles(model: ir.Model) -> tuple[dict[str, list[tuple[str, int]]], dict[str, str]]:
    """Where each symbol stands, and the role it has in a transformer, if any."""
    places = _places(model)
    return places, _roles(places)


def _places(model: ir.Model) -> dict[str, list[tuple[str, int]]]:
    """Symbol to the (input, axis) where it stands; unnamed dims get the name ``input:axis``."""
    found: dict[str, list[tuple[str, int]]] = {}
    for value in model.graph.inputs:
        if value.shape is None or value.is_initializer():
            continue
        for axis, dim in enumerate(value.shape):
            if isinstance(dim, int):
                continue
            if dim.value is None:
                value.shape[axis] = f"{value.name}:{axis}"
            symbol = str(value.shape[axis])
            found.setdefault(symbol, []).append((value.name or "", axis))
    return found


def _roles(places: Mapping[str, list[tuple[str, int]]]) -> dict[str, str]:
    """Symbol to role, by where it stands, else by what it is called."""
    roles: dict[str, str] = {}
    for symbol, where in places.items():
        by_place = {
            role
            for name, axis in where
            for pattern, at, role in _PLACES
            if axis == at and re.fullmatch(pattern, name)
        }
        by_name = {role for role, names in _SYMBOLS.items() if symbol in names}
        role = by_name or (by_place if len(by_place) == 1 else set())
        if role:
            roles[symbol] = role.pop()
    return roles


def _resolve(
    model: ir.Model,
    asked: Mapping[str, int],
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> dict[str, int]:
    fixed: dict[str, int] = {}
    for name, value in asked.items():
        if value < 0:
            raise BadInput(f"--dim {name}={value}: a dim is 0 or more")
        symbols = [name] if name in places else [s for s, role in roles.items() if role == name]
        symbols += [s for s, where in places.items() if name in {f"{n}:{a}" for n, a in where}]
        for symbol in symbols:
            if fixed.setdefault(symbol, value) != value:
                raise BadInput(f"--dim {name}={value}: {symbol} is already {fixed[symbol]}")
        if not symbols:
            _check_static(model, name, value, places, roles)
    return fixed


def _check_static(
    model: ir.Model,
    name: str,
    value: int,
    places: Mapping[str, list[tuple[str, int]]],
    roles: Mapping[str, str],
) -> None:
    """A dim that is a number already may be given again, but not another value."""
    known = _remembered(model)
    for graph_input in model.graph.inputs:
        for axis, dim in enumerate(graph_input.shape or ()):
            role = next(
                (r for p, a, r in _PLACES if a == axis and re.fullmatch(p, graph_input.name or "")),
                "",
            )
            if isinstance(dim, int) and name in {role, f"{graph_input.name}:{axis}"}:
                known.setdefault(name, dim)
    if name not in known:
        names = [s + (f" ({roles[s]})" if s in roles else "") for s in places]
        raise BadInput(
            f"--dim {name}: the model has no such dim; "
            + (f"its dims are {', '.join(names)}" if names else "all its dims are fixed")
        )
    if known[name] != value:
        raise BadInput(f"--dim {name}={value}: this model has it fixed at {known[name]}")


def _remembered(model: ir.Model) -> dict[str, int]:
    pairs = (pair.rpartition("=") for pair in model.metadata_props.get(DIMS, "").split(",") if pair)
    return {name: int(value) for name, _, value in pairs}


def _free(symbol: str, where: list[tuple[str, int]], roles: Mapping[str, str]) -> FreeDim:
    role = roles.get(symbol, "")
    meaning, proposal = ROLES.get(role, ("not known to this tool", 1))
    name, axis = where[0]
    return FreeDim(role or symbol, f"{name}, axis {axis}", meaning, proposal)


# -- derivation ----------------------------------------------------------------------------------


def _derive_sums(model: ir.Model, dims: Dims, roles: Mapping[str, str]) -> None:
    known = dims.fixed
    for symbol in _symbols(model):
        match = _SUM.fullmatch(symbol)
        if match and symbol not in known and match[1] in known and match[2] in known:
            dims.derived[symbol] = (known[match[1]] + known[match[2]], "its own sum")
    by_role = {role: symbol for symbol, role in roles.items()}
    total, past, seq = (by_role.get(role) for role in ("total", "past", "seq"))
    if total and total not in dims.values() and past in known and seq in known:
        dims.derived[total] = (known[past] + known[seq], f"{past} + {seq}")


def _derive_heads(model: ir.Model, dims: Dims) -> bool:
    """Head sizes of caches, from the widths of what goes into attention."""
    found = False
    for node in model.graph:
        if op_of(node) != "com.microsoft::GroupQueryAttention" or len(node.inputs) < 5:
            continue
        query, key, past = node.inputs[0], node.inputs[1], node.inputs[3]
        width = query.shape[-1] if query is not None and query.shape is not None else None
        heads, kv_heads = (node.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
        parts = heads if key is not None else heads + 2 * kv_heads
        if past is None or past.shape is None or not isinstance(width, int):
            continue
        size = past.shape[3]
        if not isinstance(size, int) and str(size) not in dims.values():
            dims.derived[str(size)] = (width // parts, f"the head size of '{node.name}'")
            found = True
    return found


# -- setting -------------------------------------------------------------------------------------


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        for node in graph:
            yield from node.outputs


def _symbols(model: ir.Model) -> dict[str, None]:
    return {
        str(dim): None
        for value in _values(model)
        for dim in value.shape or ()
        if not isinstance(dim, int) and dim.value is not None
    }


def _apply(model: ir.Model, known: Mapping[str, int]) -> None:
    for value in _values(model):
        if value.shape is None or value.shape.is_static():
            continue
        value.shape = ir.Shape(
            [dim if isinstance(dim, int) else known.get(str(dim), dim) for dim in value.shape]
        )
