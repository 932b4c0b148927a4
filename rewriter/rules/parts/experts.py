"""A mixture of experts as one dense pass: every expert on every token, weighted by the routing.

    y_t = Σ_e w_te · (W2_e · act(W1_e · x_t + b1_e) + b2_e),   w_te = 0 where e is not selected

An NPU has no product whose weight is looked up at run time, so nothing is saved by skipping an
expert. A few products do for all of them: the rows of every W1 lie below each other, and
Σ_e w_e · W2_e · a_e = [W2_0 W2_1 ...] · [w_0·a_0; w_1·a_1; ...]. Experts are taken in groups of
at most :data:`WIDEST` inner channels, because HTP refuses a MatMul over 32768.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.tape import Tape

WIDEST = 16384
"""Inner channels of a group of experts."""

GATED = frozenset({"geglu", "swiglu"})
PLAIN = frozenset({"gelu", "identity", "relu", "relu2", "silu"})
EMITS = (
    *("Add", "Clip", "Gelu", "MatMul", "Min", "Mul", "Relu", "Reshape", "Sigmoid", "Slice"),
    *("Split", "Unsqueeze"),
)
"""Everything that is built here, MatMul for the biases of W2; all of it is there at opset 20."""


class Linear(Protocol):
    """W·x of some experts, x (1, T, K) on the tape.

    The first product stacks their outputs, all gates before all values if it makes both; the
    second adds them up, its K channels being the experts' inner ones one after the other.
    """

    def __call__(self, op: Tape, x: ir.Value, experts: range) -> ir.Value:
        """The product, bias added."""
        ...


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
        limit = None if self.limit is None else _number(op, x, self.limit)
        if limit is not None:
            assert self.limit is not None
            value = op.Clip(value, _number(op, x, -self.limit), limit)
            x = x if self.limit_after else op.Min(x, limit)
        slope = x if self.alpha in {1.0} else op.Mul(x, _number(op, x, self.alpha))
        gate = op.Mul(x, op.Sigmoid(slope))
        if limit is not None and self.limit_after:
            gate = op.Min(gate, limit)
        if self.beta not in {0.0}:
            value = op.Add(value, _number(op, x, self.beta))
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


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer.

    Attributes:
        count: how many there are.
        inner: channels of one between its products.
        first: W1 and its bias; two of them where gates and values are products of their own.
        activation: between the products.
        second: W2.
        bias: of W2 (count, H).
    """

    count: int
    inner: int
    first: tuple[Linear, ...]
    activation: Activation
    second: Linear
    bias: npt.NDArray[np.floating] | None = None

    def __call__(self, op: Tape, x: ir.Value, weights: ir.Value) -> ir.Value:
        """Σ_e w_e · expert_e(x) (1, T, H) for x (1, T, H) and weights (1, T, count)."""
        y = None
        size = max(1, WIDEST // self.inner)
        for start in range(0, self.count, size):
            part = self._group(op, x, weights, range(start, min(start + size, self.count)))
            y = part if y is None else op.Add(y, part)
        assert y is not None
        if self.bias is not None and self.bias.any():
            y = op.Add(y, op.MatMul(weights, op.const(self.bias, x.dtype, name="second_bias")))
        return y

    def _group(self, op: Tape, x: ir.Value, weights: ir.Value, experts: range) -> ir.Value:
        halves = [linear(op, x, experts) for linear in self.first]
        width, tokens = len(experts) * self.inner, _size(x, 1)
        if self.activation.gated and len(halves) == 1:
            sizes = op.const(np.array([width, width], np.int64), name="halves")
            halves = list(op.emit("Split", (halves[0], sizes), {"axis": -1}, outputs=2))
        inner = self.activation(op, *halves)
        if len(experts) < self.count:
            weights = _slice(op, weights, experts.start, experts.stop)
        split = np.array([1, tokens, len(experts), self.inner], np.int64)
        scaled = op.Mul(op.Reshape(inner, op.const(split, name="by_expert")), _column(op, weights))
        flat = op.const(np.array([1, tokens, width], np.int64), name="stacked")
        return self.second(op, op.Reshape(scaled, flat), experts)


def _size(x: ir.Value, axis: int) -> int:
    assert x.shape is not None
    return int(str(x.shape[axis]))


def _column(op: Tape, x: ir.Value) -> ir.Value:
    return op.Unsqueeze(x, op.const(np.array([-1], np.int64), name="axes"))


def _slice(op: Tape, x: ir.Value, start: int, stop: int) -> ir.Value:
    bounds = (op.const(np.array([at], np.int64), name="bound") for at in (start, stop, 2))
    return op.Slice(x, *bounds)


def _number(op: Tape, like: ir.Value, number: float) -> ir.Value:
    return op.const(np.float64(number), like.dtype, name="number")
