"""Models that take the number of a row in the cache for the position of its token.

In a cache of fixed size whose newest rows come last the rows move with every call, and its length
says nothing of how many tokens there were. Distances between rows stay what they are.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.nodes import constant, op_of, present
from rewriter.passes.added_mask import MASK
from rewriter.passes.caches import NoCache, is_past
from rewriter.passes.origins import Origins

TOKENS = frozenset({"input_ids", "inputs_embeds"})
_POSITIONS = "position_ids"
_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_POSITIONS_AT = {
    "Cos": 0,
    "Gather": 1,
    "RotaryEmbedding": 3,
    "Sin": 0,
    "Slice": 1,
    "com.microsoft::RotaryEmbedding": 1,
}
"""Which input of an op may be positions, or angles; of Gather and Slice only over tables."""


def check_positions(model: ir.Model, origins: Origins) -> None:
    """Positions have to be given, or to follow from the mask's numbers.

    Raises:
        NoCache: they follow from the cache's length.
    """
    for node in model.graph:
        for value in _positions(node):
            if origins.numbers(value) & {MASK, _POSITIONS}:
                continue
            if any(name == MASK or is_past(name) for name in origins.lengths(value)):
                raise NoCache(
                    f"{op_of(node)} '{node.name}' takes positions from the length of the "
                    "cache, which is fixed; export the model with position_ids"
                )


def check_comparisons(mask: ir.Value | None, origins: Origins) -> None:
    """A mask must not hold numbers of rows against positions.

    Raises:
        NoCache: it does.
    """
    for node in origins.above(mask):
        if op_of(node) not in _COMPARISONS:
            continue
        given = [origins.numbers(value) for value in node.inputs if value is not None]
        counted = next((n for names in given for n in names if n not in {MASK, *TOKENS}), "")
        if counted and not all(given):
            raise NoCache(
                f"{op_of(node)} '{node.name}' of a mask compares '{counted}' with numbers of rows, "
                "and the rows of a cache of fixed size move"
            )


def _positions(node: ir.Node) -> tuple[ir.Value, ...]:
    """What may be positions: angles, and rows to take of a table of floats."""
    op = op_of(node)
    at = _POSITIONS_AT.get(op)
    if at is None or (op in {"Gather", "Slice"} and not _is_table(node.inputs[0])):
        return ()
    found = node.inputs[at : at + 1]
    return tuple(value for value in found if value is not None and present(value))


def _is_table(value: ir.Value | None) -> bool:
    stored = constant(value)
    return stored is not None and stored.dtype.is_floating_point()
