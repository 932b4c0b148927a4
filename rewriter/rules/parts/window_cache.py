"""The cache of a sliding window: a buffer (B, Hk, C, D) of the newest rows, oldest first.

After T tokens its rows 0 to L - 1 hold the last L of them, with G = C - W + 1 and
L = T - G·ceil(max(T - C, 0) / G): it fills up, then drops G rows at once, and never holds fewer
than W. So do ONNX Runtime 1.32 and its generate() with ``sliding_window_cache=1``; rows from L on
are unspecified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.cache import write
from rewriter.rules.parts.shorthand import axes, reshaped, sliced
from rewriter.tape import Tape


def kept(tokens: int, capacity: int, window: int) -> int:
    """L: how many of the newest of ``tokens`` rows a buffer holds.

    >>> [kept(tokens, 6, 4) for tokens in (3, 6, 7, 9, 10)]
    [3, 6, 4, 6, 4]
    """
    step = capacity - window + 1
    return tokens - step * -(-max(tokens - capacity, 0) // step)


@dataclass(frozen=True, slots=True)
class WindowCache:
    """Where the rows of one call go.

    Attributes:
        last: position of the last token (B).
        tokens: S.
        capacity: C.
        window: W.
    """

    last: ir.Value
    tokens: int
    capacity: int
    window: int

    def rows(self, op: Tape) -> ir.Value:
        """Rows (B, S) of the new tokens behind those that are held: L(T - S) + 0, 1, ... S - 1."""

        def build() -> ir.Value:
            held = self._kept(op, self._length(op, 1 - self.tokens))
            return op.Add(held, _const(op, np.arange(self.tokens)[None, :], held, "steps"))

        return op.once(("window rows", self), build)

    def write(self, op: Tape, past: ir.Value, new: ir.Value) -> tuple[ir.Value, ir.Value]:
        """All rows that the tokens may see (B, Hk, C + S, D), and the next buffer."""
        seen = write(op, past, new, self.rows(op), self.capacity + self.tokens)
        batch, heads, _, size = static_dims(new)
        newest = self._newest(op)
        if batch == 1:
            flat = reshaped(op, newest, (-1,), "flat")
            return seen, op.Gather(seen, flat, axis=2)

        def build() -> ir.Value:
            column = op.Unsqueeze(newest, axes(op, 1, 3))
            shape = np.array([batch, heads, self.capacity, size], np.int64)
            return op.Expand(column, op.const(shape, name="kept_shape"))

        index = op.once(("window kept", self, heads, size), build)
        return seen, op.GatherElements(seen, index, axis=2)

    def _newest(self, op: Tape) -> ir.Value:
        """Rows (B, C) of what :meth:`write` wrote that make the next buffer; beyond L the last."""

        def build() -> ir.Value:
            total = self._length(op, 1)
            held = self._kept(op, self._length(op, 1 - self.tokens))
            grown = op.Add(held, _const(op, np.array([[self.tokens]]), held, "tokens"))
            first = op.Sub(grown, self._kept(op, total))
            kept_rows = op.Add(first, _const(op, np.arange(self.capacity)[None, :], first, "kept"))
            final = np.array([[self.capacity + self.tokens - 1]])
            return op.Min(kept_rows, _const(op, final, first, "final"))

        return op.once(("window newest", self), build)

    def _length(self, op: Tape, more: int) -> ir.Value:
        """Tokens (B, 1) so far, counted from the last position."""
        column = reshaped(op, self.last, (-1, 1), "column")
        return op.Add(column, _const(op, np.array([[more]]), column, "more"))

    def _kept(self, op: Tape, length: ir.Value) -> ir.Value:
        """:func:`kept` in integers; of a buffer as long as the window simply min(T, C)."""
        step, capacity = self.capacity - self.window + 1, self.capacity

        def number(value: int) -> ir.Value:
            return _const(op, np.array([[value]]), length, "number")

        if step == 1:
            return op.Min(length, number(capacity))
        over = op.Max(op.Sub(length, number(capacity)), number(0))
        drops = op.Div(op.Add(over, number(step - 1)), number(step))
        return op.Sub(length, op.Mul(drops, number(step)))


def write_first(op: Tape, past: ir.Value, new: ir.Value, window: int) -> ir.Value:
    """The buffer after a first prompt: its newest rows, then what the buffer held."""
    capacity, tokens = static_dims(past)[2], static_dims(new)[2]
    rows = kept(tokens, capacity, window)
    newest = new if rows == tokens else sliced(op, new, tokens - rows, tokens, 2)
    if rows == capacity:
        return newest
    return op.Concat(newest, sliced(op, past, rows, capacity, 2), axis=2)


def _const(op: Tape, array: object, like: ir.Value, name: str) -> ir.Value:
    assert like.dtype is not None
    return op.const(np.asarray(array), like.dtype, name=name)
