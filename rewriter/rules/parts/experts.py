"""A mixture of experts as one dense pass: every expert on every token, weighted by the routing.

    y_t = Σ_e w_te · (W2_e · act(W1_e · x_t + b1_e) + b2_e),   w_te = 0 where e is not selected

An NPU multiplies by weights that are stored, so nothing is saved there by skipping an expert. Two
or three products do for all of them: the rows of every W1 lie below each other, and
Σ_e w_e · W2_e · a_e = [W2_0 W2_1 ...] · [w_0·a_0; w_1·a_1; ...]. The same holds of the experts that
are chosen, where their weights are gathered at run time (:func:`moe_layer.chosen_experts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rules.parts.expert_activation import Activation
from rewriter.rules.parts.shorthand import axes, reshaped
from rewriter.tape import Tape

EMITS = (
    *("Add", "Clip", "Gelu", "MatMul", "Min", "Mul", "Relu", "Reshape", "Sigmoid"),
    *("Shape", "Split", "Unsqueeze"),
)
"""All that is built, around it too (MatMul for the biases of W2), and there at opset 20."""


class Linear(Protocol):
    """W·x of all experts, x (1, T, K) on the tape.

    The first product stacks their outputs, all gates before all values if it makes both; the
    second adds them up, its K channels being the experts' inner ones one after the other.
    """

    def __call__(self, op: Tape, x: ir.Value) -> ir.Value:
        """The product, bias added."""
        ...


@dataclass(frozen=True, slots=True)
class DenseExperts:
    """The experts of one layer.

    Attributes:
        count: how many there are.
        inner: channels of one between its products.
        first: W1 and its bias; two of them where gates and values are products of their own.
        activation: between the products.
        second: W2.
        bias: makes that of W2, (count, H), if there is one.
    """

    count: int
    inner: int
    first: tuple[Linear, ...]
    activation: Activation
    second: Linear
    bias: Callable[[], ir.Value] | None = None

    def __call__(self, op: Tape, x: ir.Value, weights: ir.Value) -> ir.Value:
        """Σ_e w_e · expert_e(x) (1, T, H) for x (1, T, H) and weights (1, T, count)."""
        halves = [linear(op, x) for linear in self.first]
        width, tokens = self.count * self.inner, (dims_of(x) or ())[1] or 0
        if self.activation.gated and len(halves) == 1:
            sizes = op.const(np.array([width, width], np.int64), name="halves")
            halves = list(op.emit("Split", (halves[0], sizes), {"axis": -1}, outputs=2))
        inner = self.activation(op, *halves)
        split = reshaped(op, inner, (1, tokens, self.count, self.inner), "by_expert")
        scaled = op.Mul(split, op.Unsqueeze(weights, axes(op, -1)))
        y = self.second(op, reshaped(op, scaled, (1, tokens, width), "stacked"))
        return y if self.bias is None else op.Add(y, op.MatMul(weights, self.bias()))
