"""The experts of a layer whose weights are floats, as one constant that holds all of them.

The constant is lazy: it is made when the file is written. With an axis for the experts it is what
chosen experts are gathered from at run time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.expert_arrangement import Arrangement, Array, biased
from rewriter.rules.parts.shorthand import reshaped
from rewriter.tape import Tape


@dataclass(frozen=True, slots=True)
class FloatLinear:
    """Experts whose weight (E, N, K) is stored as floats.

    Attributes:
        key: names the weight among the constants of a graph.
        weight: the tensor.
        arrangement: of its experts.
        bias: (E, N), of stacked rows only.
    """

    key: Hashable
    weight: ir.TensorProtocol
    arrangement: Arrangement
    bias: Array | None = None

    def __call__(self, op: Tape, x: ir.Value) -> ir.Value:
        """MatMul with the transposed weight, and the bias."""
        n, k = self.arrangement.shape(*(int(d) for d in self.weight.shape.numpy()))
        y = op.MatMul(x, self._stored(op, (k, n)))
        return biased(op, y, self.bias, self.arrangement)

    def of(self, op: Tape, x: ir.Value, experts: ir.Value) -> ir.Value:
        """The same of the experts (S,) alone, in their order."""
        count, rows, columns = (int(d) for d in self.weight.shape.numpy())
        (size,) = static_dims(experts)
        n, k = self.arrangement.shape(size, rows, columns)
        if self.arrangement.order is None:  # (E·K, N)
            grid = (1, count, columns * rows)
        else:  # (K, parts·E·rows of a part)
            outer, _, inner = self.arrangement.grid(count, rows)
            grid = (columns * outer, count, inner)
        chosen = op.Gather(self._stored(op, grid), experts, axis=1)
        y = op.MatMul(x, reshaped(op, chosen, (k, n), "matrix"))
        return biased(op, y, self.bias, self.arrangement, experts)

    def _stored(self, op: Tape, shape: tuple[int, ...]) -> ir.Value:
        """The transposed matrix of all experts, in a shape."""

        def matrix() -> ir.TensorProtocol:
            transposed = np.ascontiguousarray(self.arrangement(self.weight.numpy()).T)
            return ir.tensor(transposed.reshape(shape), dtype=self.weight.dtype)

        lazy = ir.LazyTensor(matrix, self.weight.dtype, ir.Shape(shape))
        return op.weight((self.key, self.arrangement, shape), lazy, "experts")
