"""How the experts of a layer come together in one matrix, and in one row of biases.

The first product stacks rows (E, N, K) -> (E·N, K), gates before values; the second lays the
experts side by side, (E, N, K) -> (N, E·K).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.rules.parts.shorthand import reshaped
from rewriter.tape import Tape

Array = npt.NDArray[Any]


class Order:
    """Where the rows of W1 hold gates and values: functions of row numbers (E, N)."""

    @staticmethod
    def plain(rows: Array) -> list[Array]:
        """No gates."""
        return [rows]

    @staticmethod
    def interleaved(rows: Array) -> list[Array]:
        """g0, l0, g1, l1, ..."""
        return [rows[:, 0::2], rows[:, 1::2]]

    @staticmethod
    def halves(rows: Array) -> list[Array]:
        """All g, then all l."""
        return list(np.split(rows, 2, axis=1))


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How experts come together; without an order they lie side by side."""

    order: Callable[[Array], list[Array]] | None

    def shape(self, count: int, rows: int, columns: int) -> tuple[int, int]:
        """Of the result for (count, rows, columns)."""
        return (rows * count, columns) if self.order else (rows, columns * count)

    def grid(self, count: int, rows: int) -> tuple[int, int, int]:
        """The rows of the result, or their pieces, as (outer, count, inner), to pick experts of."""
        if self.order is None:
            return rows, count, 1
        parts = len(self.order(np.zeros((1, rows), np.int8)))
        return parts, count, rows // parts

    def __call__(self, array: Array) -> Array:
        """The experts of an array (E, rows, columns) as one matrix."""
        count, rows, columns = array.shape
        if self.order is None:
            return array.transpose(1, 0, 2).reshape(rows, count * columns)
        taken = [at.reshape(-1) for at in self.order(np.arange(count * rows).reshape(count, rows))]
        stacked: Array = array.reshape(count * rows, columns)[np.concatenate(taken)]
        return stacked


def biased(
    op: Tape,
    y: ir.Value,
    bias: Array | None,
    arrangement: Arrangement,
    experts: ir.Value | None = None,
) -> ir.Value:
    """Y + the bias (E, N) of stacked rows, of all experts or of chosen ones; zeros add nothing."""
    if bias is None or not bias.any():
        return y
    rows = arrangement(bias[:, :, None])
    if experts is None:
        return op.Add(y, op.const(rows.reshape(-1), y.dtype, name="bias"))
    by_expert = op.const(rows.reshape(arrangement.grid(*bias.shape)), y.dtype, name="bias")
    return op.Add(y, reshaped(op, op.Gather(by_expert, experts, axis=1), (-1,), "row"))
