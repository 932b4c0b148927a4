"""Which keys the tokens of an attention may see by their positions, known now or at run time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rules.parts.positions import next_positions, visible
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class Sight:
    """Which keys the tokens may see by position: p - left <= key <= p + right, key < nonpad.

    Attributes:
        tokens: S; token i stands at position p = offset + i.
        keys: T; key j stands at position j.
        past: the offset where there is no ``nonpad``.
        nonpad: valid keys (B) of each sequence; the offset is nonpad - S.
        left: -1 for no bound.
        right: -1 for no bound; 0 is causal.
    """

    tokens: int
    keys: int
    past: int = 0
    nonpad: ir.Value | None = None
    left: int = -1
    right: int = -1

    def known(self) -> npt.NDArray[np.bool_] | None:
        """Who sees what, (B or 1, 1, S, T), unless it depends on lengths given at run time."""
        lengths = constant(self.nonpad)
        if self.nonpad is not None and lengths is None:
            return None
        seen = np.ones((1, 1, self.tokens, self.keys), np.bool_)
        key, offset = np.arange(self.keys), np.array(self.past)
        if lengths is not None:
            offset = lengths.numpy().reshape(-1, 1, 1, 1) - self.tokens
            seen = seen & (key < offset + self.tokens)
        token = offset + np.arange(self.tokens)[:, None]
        if self.right >= 0:
            seen = seen & (key <= token + self.right)
        return seen & (key >= token - self.left) if self.left >= 0 else seen

    def built(self, op: Tape) -> ir.Value | None:
        """The same as nodes over integers; nothing where every key is seen."""
        if self.nonpad is None:
            known = self.past + np.arange(self.tokens, dtype=np.int32)[None, :]
            where = op.const(known, name="positions")
        else:
            where = next_positions(op, self.nonpad, self.tokens, past_end=True)
        terms = []
        if self.left >= 0 or self.right >= 0:
            terms.append(visible(op, where, self.keys, self.left, self.right))
        if self.nonpad is not None and self.right != 0:  # the causal bound ends at nonpad - 1
            last = next_positions(op, self.nonpad, 1, past_end=True)
            terms.append(visible(op, last, self.keys, -1, 0))
        return op.And(*terms) if len(terms) == 2 else next(iter(terms), None)
