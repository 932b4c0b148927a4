"""The caches of a graph: which output continues which input, and how rows are laid out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rewriter.cache_layout import CacheLayout
from rewriter.errors import BadInput
from rewriter.generate.ports import Port

_ROWS, _RANK = 2, 4
_NAMES = (
    (r"past_key_values", "present"),
    (r"past", "present"),
    (r"^(key|value)_cache", r"updated_\1_cache"),
    (r"_in$", "_out"),
)
"""How names of outputs follow from names of inputs, by the exporters we know."""

_ADVICE = "write the folder with 'rewrite MODEL --ep EP --static both -o FOLDER'"


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache.

    Attributes:
        past: name of the input.
        present: name of the output that continues it.
        dtype: of both.
        heads: of keys and values.
        rows: 0 where it grows.
        size: of a head.
        window: tokens that a query sees, where it keeps the newest only.
    """

    past: str
    present: str
    dtype: np.dtype[Any]
    heads: int
    rows: int
    size: int
    window: int | None

    def empty(self, batch: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype before the first token."""
        return (batch, self.heads, self.rows, self.size), self.dtype


@dataclass(frozen=True, slots=True)
class Caches:
    """All caches of a graph.

    Attributes:
        graph: its name, for errors.
        alignment: as :class:`CacheLayout` has it, or ``none`` where there are none.
        all: by the name of the input.
    """

    graph: str
    alignment: Literal["none", "growing", "left", "right"]
    all: Mapping[str, Cache]

    @property
    def rows(self) -> int | None:
        """Tokens that fit; nothing where caches grow."""
        if self.alignment not in {"left", "right"}:
            return None
        return min((c.rows for c in self.all.values() if c.window is None), default=None)

    @property
    def windowed(self) -> bool:
        """Whether some keep the newest tokens only, so that no pad may enter."""
        return any(c.window is not None for c in self.all.values())


def continues(
    pasts: Mapping[str, Port], outputs: Mapping[str, Port], unread: Sequence[str]
) -> dict[str, str]:
    """Which output continues which input: by names, else by position where the shapes allow it.

    Args:
        pasts: inputs that may be caches, in order.
        outputs: outputs that may be.
        unread: those that no part reads, in order: without a name to go by it is one of them.

    Returns:
        Names of inputs to names of outputs; inputs without one are left out.
    """
    named = {past: present for past in pasts if (present := _named(past, outputs))}
    left = [past for past in pasts if past not in named]
    free = [name for name in unread if name not in named.values()]
    if len(left) == len(free) and all(
        _alike(pasts[past], outputs[present]) for past, present in zip(left, free, strict=True)
    ):
        named |= dict(zip(left, free, strict=True))
    return {past: named[past] for past in pasts if past in named}


def _named(past: str, outputs: Mapping[str, Port]) -> str | None:
    names = (re.sub(pattern, to, past, count=1) for pattern, to in _NAMES)
    return next((name for name in names if name != past and name in outputs), None)


def _alike(past: Port, present: Port) -> bool:
    if past.dtype != present.dtype or not len(past.shape) == len(present.shape) == _RANK:
        return False
    pairs = [(past.dim(axis), present.dim(axis)) for axis in (1, 3)]
    return all(a == b for a, b in pairs if a is not None and b is not None)


def caches_of(
    graph: str,
    pairs: Sequence[tuple[Port, Port]],
    noted: CacheLayout | None,
    windows: Mapping[str, int],
    sizes: Mapping[str, int],
) -> Caches:
    """The caches of a graph.

    Args:
        graph: its name.
        pairs: inputs, and the outputs that continue them.
        noted: what the graph says of them.
        windows: caches that keep the newest tokens only, as the graph's nodes say it.
        sizes: of heads, where nodes say it.

    Raises:
        BadInput: a shape that is not known, or a layout that cannot be told.
    """
    if not pairs:
        return Caches(graph, "none", {})
    seen = {**windows, **(noted.windows if noted else {})}
    full = [pair for pair in pairs if pair[0].name not in seen]
    alignment = noted.alignment if noted else _derived(graph, full)
    if alignment == "right" and len(full) < len(pairs):
        raise BadInput(f"{graph}: windowed caches among those that lie at the right; {_ADVICE}")
    found = {}
    for past, present in pairs:
        cache = _cache(graph, past, present, seen.get(past.name), alignment, sizes)
        found[past.name] = cache
    return Caches(graph, alignment, found)


def _derived(graph: str, full: Sequence[tuple[Port, Port]]) -> Literal["growing"]:
    """Without a note only one layout is certain: what has no fixed rows grows."""
    for past, present in full:
        if isinstance(present.shape[_ROWS] if len(present.shape) == _RANK else 0, int):
            raise BadInput(
                f"{graph}: its cache '{past.name}' has fixed rows, {past} to {present}, and the "
                f"file does not say where new tokens go; {_ADVICE}"
            )
    return "growing"


def _cache(
    graph: str,
    past: Port,
    present: Port,
    window: int | None,
    alignment: Literal["growing", "left", "right"],
    sizes: Mapping[str, int],
) -> Cache:
    if len(past.shape) != _RANK or len(present.shape) != _RANK:
        raise BadInput(
            f"{graph}: its cache '{past.name}' is {past}, where (batch, heads, rows, size) is "
            "needed"
        )
    heads, size = (past.dim(axis) or present.dim(axis) for axis in (1, 3))
    size = size or sizes.get(past.name)
    if heads is None or size is None:
        raise BadInput(
            f"{graph}: its cache '{past.name}' is {past}, whose heads are not numbers; fix them "
            "with --dim when the folder is written"
        )
    rows = _rows(graph, past, present, window, alignment)
    return Cache(past.name, present.name, past.dtype, heads, rows, size, window)


def _rows(graph: str, past: Port, present: Port, window: int | None, alignment: str) -> int:
    before, after = past.dim(_ROWS), present.dim(_ROWS)
    if window is not None:
        if before is not None and before < window:
            raise BadInput(
                f"{graph}: its cache '{past.name}' has {before} rows, fewer than its window of "
                f"{window}; {_ADVICE}"
            )
        return before or window
    if alignment == "growing":
        if before is not None and before > 0:
            raise BadInput(
                f"{graph}: its cache '{past.name}' takes {before} rows and no other number, so "
                f"it serves one call only; {_ADVICE}"
            )
        return 0
    if before is None or before != after:
        raise BadInput(
            f"{graph}: its cache '{past.name}' is said to keep its rows, and goes from {past} to "
            f"{present}; {_ADVICE}"
        )
    return before


def compare(prefill: Caches, decode: Caches) -> None:
    """Both graphs work on the same caches.

    Raises:
        BadInput: they do not.
    """
    if prefill.alignment != decode.alignment:
        raise BadInput(
            f"the caches of prefill are {prefill.alignment} and those of decode "
            f"{decode.alignment}; write both with one call of 'rewrite'"
        )
    for name in {**prefill.all, **decode.all}:
        one, other = prefill.all.get(name), decode.all.get(name)
        if one is None or other is None:
            missing = "prefill" if one is None else "decode"
            raise BadInput(f"the cache '{name}' is missing in {missing}; they are not of one model")
        if (one.empty(1), one.window) != (other.empty(1), other.window):
            raise BadInput(
                f"the cache '{name}' is {one.empty(1)[0]} in prefill and {other.empty(1)[0]} in "
                "decode; write both with one call of 'rewrite'"
            )
