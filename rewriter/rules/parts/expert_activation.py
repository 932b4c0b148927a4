"""What lies between the two products of an expert: plain, or gates that multiply values."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from rewriter.rules.parts.shorthand import number
from rewriter.tape import Tape

GATED = frozenset({"geglu", "swiglu"})
PLAIN = frozenset({"gelu", "identity", "relu", "relu2", "silu"})


@dataclass(frozen=True, slots=True)
class Activation:
    """What lies between the two products.

    Attributes:
        kind: one of :data:`PLAIN`, or of :data:`GATED`, which multiply two halves.
        alpha: swiglu is g · sigmoid(alpha·g) · (l + beta).
        beta: see alpha.
        limit: swiglu cuts g above, and l on both sides; None is no limit.
        limit_after: what is cut of g is g · sigmoid(alpha·g).
    """

    kind: str
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    limit_after: bool = False

    @property
    def gated(self) -> bool:
        """Whether it takes gates and values."""
        return self.kind in GATED

    def __call__(self, op: Tape, x: ir.Value, value: ir.Value | None = None) -> ir.Value:
        """Of inner channels x, or of gates x and values."""
        if value is None:
            return self._plain(op, x)
        if self.kind == "geglu":
            return op.Mul(op.Gelu(x, approximate="tanh"), value)
        limit = None if self.limit is None else number(op, x, self.limit)
        if limit is not None:
            assert self.limit is not None
            value = op.Clip(value, number(op, x, -self.limit), limit)
            x = x if self.limit_after else op.Min(x, limit)
        slope = x if self.alpha in {1.0} else op.Mul(x, number(op, x, self.alpha))
        gate = op.Mul(x, op.Sigmoid(slope))
        if limit is not None and self.limit_after:
            gate = op.Min(gate, limit)
        if self.beta not in {0.0}:
            value = op.Add(value, number(op, x, self.beta))
        return op.Mul(gate, value)

    def _plain(self, op: Tape, x: ir.Value) -> ir.Value:
        if self.kind == "identity":
            return x
        if self.kind == "silu":
            return op.Mul(x, op.Sigmoid(x))
        if self.kind == "gelu":
            return op.Gelu(x, approximate="tanh")
        positive = op.Relu(x)
        return positive if self.kind == "relu" else op.Mul(positive, positive)
