"""Every symbolic dim becomes a number: asked for, derived, or listed as free.

A dim is named by the model's own symbol, by the input and axis it stands at (``input_ids:1``), or
by its role in a transformer (:data:`ROLES`). What weights, attributes and other dims determine is
derived: ``a + b`` symbols, the attention mask's length, the head size of a cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from rewriter.errors import BadInput
from rewriter.passes.dim_fit import (
    check_caches,
    check_declared,
    check_rotary,
    head_size,
    infer,
    joined,
    pasts,
    windows,
)
from rewriter.passes.dim_free import FreeDim, FreeDims, free_dims
from rewriter.passes.dim_names import (
    DIMS,
    ROLES,
    places_and_roles,
    plain,
    remembered,
    resolve,
)

__all__ = ["DIMS", "ROLES", "Dims", "FreeDim", "FreeDims", "fix_dims", "places_and_roles"]


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

    def require_fixed(self, ep: str) -> None:
        """Stop where an EP needs every dim.

        Raises:
            FreeDims: some are free.
        """
        if self.free:
            raise FreeDims(ep, self.free)


def fix_dims(model: ir.Model, asked: Mapping[str, int]) -> Dims:
    """Set the dims of a model in place, and infer all shapes from them.

    Args:
        model: a model whose inputs may have symbolic dims.
        asked: values by symbol, place or role.

    Raises:
        BadInput: a name that is no dim of the model, two values for one dim, values that do not
            fit together, or shapes that contradict each other.
    """
    places, roles = places_and_roles(model)
    dims = Dims(resolve(model, asked, places, roles))
    _derive_sums(model, dims)
    windowed = _windowed(model)
    _derive_total(dims, roles, windowed)
    _hold_windows(dims, asked, windowed)
    check_rotary(model, dims.values(), roles)
    _apply(model, dims.values())
    infer(model, dims.fixed)
    if _derive_heads(model, dims):
        _apply(model, dims.values())
        infer(model, dims.fixed)
    check_caches(model)
    check_declared(model, dims.fixed)
    dims.free = free_dims(model, dims.values(), places, roles)
    known = dims.values()
    if known:
        stored = {**remembered(model), **known}
        model.metadata_props[DIMS] = json.dumps(stored, sort_keys=True)
    return dims


# -- derivation ----------------------------------------------------------------------------------


def _derive_sums(model: ir.Model, dims: Dims) -> None:
    """Symbols such as ``past + seq``: the sum from its terms, or the last term from the rest."""
    sums = {s: plain(s).split("+") for s in _symbols(model) if "+" in s}
    while any(_derive_sum(symbol, terms, dims) for symbol, terms in sums.items()):
        pass


def _derive_sum(symbol: str, terms: list[str], dims: Dims) -> bool:
    """Derive what one sum determines; whether there was anything."""
    known = dims.values()
    open_terms = [t for t in terms if not t.isdecimal() and t not in known]
    rest = sum(int(t) if t.isdecimal() else known.get(t, 0) for t in terms)
    if not open_terms:
        if known.setdefault(symbol, rest) != rest:
            raise BadInput(
                f"--dim: {symbol} is given as {known[symbol]}, but its parts make {rest}; "
                "leave one of them out"
            )
        if symbol in dims.values():
            return False
        dims.derived[symbol] = (rest, "its own sum")
        return True
    if symbol not in known or len(open_terms) > 1 or "" in open_terms:
        return False
    if known[symbol] < rest:
        raise BadInput(
            f"--dim: {symbol} is given as {known[symbol]}, less than its parts, {rest}; "
            "leave one of them out"
        )
    dims.derived[open_terms[0]] = (known[symbol] - rest, f"{symbol} = {known[symbol]}")
    return True


def _windowed(model: ir.Model) -> dict[str, int]:
    """Symbols of caches that hold a window only, with the rows of the longest one."""
    caches = windows(model)
    rows: dict[str, int] = {}
    for value in model.graph.inputs:
        if value.name in caches and value.shape is not None and value.shape.rank() == 4:
            symbol = str(value.shape[2])
            rows[symbol] = max(rows.get(symbol, 0), caches[value.name][1])
    return rows


def _hold_windows(dims: Dims, asked: Mapping[str, int], windowed: Mapping[str, int]) -> None:
    """A cache of a window has its rows, however many tokens came before.

    So a prompt's graph and that of the tokens after it have the same buffer; other lengths are
    asked for by the dim's own name.
    """
    named = {plain(name) for name in asked}
    for symbol, rows in windowed.items():
        if dims.fixed.get(symbol, rows) != rows and plain(symbol) not in named:
            del dims.fixed[symbol]
            dims.derived[symbol] = (rows, "the window that its cache has to hold")


def _derive_total(dims: Dims, roles: Mapping[str, str], windowed: Mapping[str, int]) -> None:
    """The length of the mask; less than past + seq where the cache is a buffer with room."""
    known = dims.values()
    by_role = {role: symbol for symbol, role in roles.items() if symbol in windowed}
    by_role |= {role: symbol for symbol, role in roles.items() if symbol not in windowed}
    total, past, seq = (by_role.get(role) for role in ("total", "past", "seq"))
    if total is None or past not in known or seq not in known:
        return
    most = known[past] + known[seq]
    if total not in known:
        dims.derived[total] = (most, f"{past} + {seq}")
    elif past not in windowed and not known[seq] <= known[total] <= most:
        raise BadInput(
            f"--dim: {total} is given as {known[total]}; with {past}={known[past]} and "
            f"{seq}={known[seq]} it is from {known[seq]} to {most}, leave it out for {most}"
        )


def _derive_heads(model: ir.Model, dims: Dims) -> bool:
    """Head sizes of caches, from the widths of what goes into attention or is put behind them."""
    found = False
    for node, symbol, size in joined(model):
        if symbol not in dims.values():
            dims.derived[symbol] = (size, f"what '{node.name}' puts together")
            found = True
    for node, past in pasts(model):
        derived = head_size(node)
        if derived is None or past.shape is None or past.shape.rank() != 4:
            continue
        width = past.shape[3]
        if not isinstance(width, int) and str(width) not in dims.values():
            dims.derived[str(width)] = (derived, f"the head size of '{node.name}'")
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
