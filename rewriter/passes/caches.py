"""The caches of a decoder: which inputs they are, and what puts the new rows in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from rewriter.nodes import op_of, present
from rewriter.passes.dim_names import role_at

Kind = Literal["buffer", "scattered", "growing"]

_WRITERS: dict[tuple[str, int], tuple[Kind, int]] = {
    ("com.microsoft::GroupQueryAttention", 3): ("buffer", 1),
    ("com.microsoft::GroupQueryAttention", 4): ("buffer", 2),
    ("TensorScatter", 0): ("scattered", 0),
    ("Concat", 0): ("growing", 0),
    ("Attention", 4): ("growing", 1),
    ("Attention", 5): ("growing", 2),
    ("com.microsoft::MultiHeadAttention", 6): ("growing", 1),
    ("com.microsoft::MultiHeadAttention", 7): ("growing", 2),
}
"""Op and input to the kind of cache, and the output that is its present."""
_ROWS = 2
"""Axis of the rows in a cache (B, H, rows, D)."""


class NoCache(ValueError):
    """An input cannot be a cache of fixed size; the message says why."""


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache.

    Attributes:
        past: the graph input.
        kind: ``buffer`` keeps its size as GroupQueryAttention writes into it, ``scattered`` as
            TensorScatter does; of a ``growing`` one the present is past and new rows.
        uses: nodes that put new rows in, with the place of the past among their inputs.
        present: the value that holds past and new rows, and is an output of the graph.
    """

    past: ir.Value
    kind: Kind
    uses: tuple[tuple[ir.Node, int], ...]
    present: ir.Value | None

    @property
    def name(self) -> str:
        """The name of the input."""
        return self.past.name or ""


def is_past(name: str) -> bool:
    """Whether an input of that name is a cache."""
    return role_at(name, _ROWS) in {"past", "max"}


def caches(model: ir.Model) -> list[Cache]:
    """Every cache of a model.

    Raises:
        NoCache: one is read by something else than what is known to write new rows.
    """
    inputs = [v for v in model.graph.inputs if not v.is_initializer() and is_past(v.name or "")]
    return [_cache(model, value) for value in inputs]


def _cache(model: ir.Model, past: ir.Value) -> Cache:
    found = [(use.node, use.idx, _kind(model, past, use.node, use.idx)) for use in past.uses()]
    writers = [(node, at, kind) for node, at, kind in found if kind is not None]
    if not writers:
        raise NoCache(f"nothing puts new rows into the cache '{past.name}'")
    first, _, kind = writers[0]
    for node, _, other in writers:
        if other != kind:
            raise NoCache(
                f"the cache '{past.name}' is read by {op_of(first)} '{first.name}' and "
                f"{op_of(node)} '{node.name}', of which only one writes into a buffer"
            )
    if kind == "buffer" and len(writers) < len(found):
        shape = next(node for node, _, other in found if other is None)
        raise NoCache(
            f"{op_of(shape)} '{shape.name}' takes the rows of the buffer '{past.name}' for its "
            "length; only the attention mask says how many are valid"
        )
    uses = tuple((node, at) for node, at, _ in writers)
    return Cache(past, kind, uses, _present(uses))


def _kind(model: ir.Model, past: ir.Value, node: ir.Node, at: int) -> Kind | None:
    """What a reader makes of a cache; nothing if it reads the shape alone."""
    op = op_of(node)
    if op in {"Shape", "Size"}:
        return None
    kind = _WRITERS.get((op, at), (None, 0))[0]
    if node.graph is not model.graph:
        raise NoCache(f"the cache '{past.name}' is read inside a branch, by {op} '{node.name}'")
    if kind is None:
        raise NoCache(
            f"the cache '{past.name}' is read by {op} '{node.name}', which is not known to put "
            "new rows behind those of a cache"
        )
    if op == "Concat":
        axis = node.attributes["axis"].as_int()
        if axis not in {_ROWS, _ROWS - 4} or len(node.inputs) != 2:
            raise NoCache(
                f"Concat '{node.name}' does not put new rows behind those of the cache "
                f"'{past.name}': its axis is {axis}, of {len(node.inputs)} inputs"
            )
    if op == "com.microsoft::MultiHeadAttention" and len(node.inputs) > 8:
        extra = node.inputs[8]
        if present(extra):
            raise NoCache(
                f"MultiHeadAttention '{node.name}' takes the length of the buffer '{past.name}' "
                "from an input of its own, past_sequence_length"
            )
    return kind


def _present(uses: Iterable[tuple[ir.Node, int]]) -> ir.Value | None:
    for node, at in uses:
        output = _WRITERS[op_of(node), at][1]
        value = node.outputs[output] if output < len(node.outputs) else None
        if value is not None and value.is_graph_output():
            return value
    return None
