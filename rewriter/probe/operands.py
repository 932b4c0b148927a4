"""What the inputs of a probed node are: fed when it runs, or stored in the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], npt.ArrayLike]
"""Numbers of an operand by its role; they are cast to its type."""

SHORT = {
    "f32": ir.DataType.FLOAT,
    "f16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
    "f64": ir.DataType.DOUBLE,
}
"""Types that records have a shorter word for; all others are called as in ONNX."""


def data_type(word: str) -> ir.DataType:
    """The type of a record's word: ``f32``, ``int4``, ``bool``, ..."""
    return SHORT.get(word) or ir.DataType[word.upper()]


def _anything(rng: np.random.Generator, shape: tuple[int, ...], dtype: ir.DataType) -> Array:
    """Standard normal floats, coin flips, or integers of four bits (two, where no more fit)."""
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, shape)
    if not dtype.is_integer():
        return rng.standard_normal(shape)
    half = 1 << (min(dtype.bitwidth, 4) - 1)
    return rng.integers(
        -half if dtype.is_signed() else 0, half if dtype.is_signed() else 2 * half, shape
    )


@dataclass(frozen=True, slots=True)
class Operand:
    """One input of a node.

    Attributes:
        shape: dims; a name is a free dim, of which four are fed.
        dtype: the case's own when empty.
        draw: its numbers; any of its type when None.
        stored: a constant of the model, not fed.
    """

    shape: tuple[int | str, ...]
    dtype: str = ""
    draw: Draw | None = None
    stored: bool = False

    def array(self, rng: np.random.Generator, dtype: ir.DataType) -> Array:
        """Its numbers, in the numpy type that stands for an ONNX type."""
        shape = tuple(d if isinstance(d, int) else FREE for d in self.shape)
        drawn = _anything(rng, shape, dtype) if self.draw is None else self.draw(rng, shape)
        return np.array(np.broadcast_to(np.asarray(drawn), shape), dtype.numpy(), order="C")


FREE = 4
"""How long a free dim is when it is fed."""


def run(*shape: int | str, dtype: str = "", draw: Draw | None = None) -> Operand:
    """An input of the graph."""
    return Operand(shape, dtype, draw)


def const(*shape: int, dtype: str = "", draw: Draw | None = None) -> Operand:
    """A constant of the model that is drawn."""
    return Operand(shape, dtype, draw, stored=True)


def value(numbers: npt.ArrayLike, dtype: str = "int64") -> Operand:
    """A constant of the model with these numbers: axes, a shape, a zero point."""
    array = np.asarray(numbers)
    return Operand(array.shape, dtype, exactly(array), stored=True)


def fed(operand: Operand) -> Operand:
    """The same, fed instead of stored."""
    return replace(operand, stored=False)


def exactly(numbers: npt.ArrayLike) -> Draw:
    """These numbers, broadcast to the shape."""
    return lambda _rng, _shape: np.asarray(numbers)


def uniform(low: float, high: float) -> Draw:
    """Floats between two bounds: ``uniform(0.5, 2)`` for a root, a logarithm, a scale."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def below(end: int, start: int = 0) -> Draw:
    """Integers, both ends of the range among them: indices of a dim, negative ones too."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        numbers = np.asarray(rng.integers(start, end, shape))
        numbers.reshape(-1)[:1] = start
        numbers.reshape(-1)[1:2] = end - 1
        return numbers

    return draw


def distinct(end: int) -> Draw:
    """Different integers below a bound along the last axis: rows to write, which no two share."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        rows = int(np.prod(shape[:-1]))
        return np.stack([rng.permutation(end)[: shape[-1]] for _ in range(rows)]).reshape(shape)

    return draw


def scaled(factor: float) -> Draw:
    """Normal floats times a factor."""
    return lambda rng, shape: factor * rng.standard_normal(shape)


def identity(_rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The identity in the last two dims: what a product with weights then gives are the weights."""
    return np.broadcast_to(np.eye(shape[-2], shape[-1]), shape)


def causal(hidden: float) -> Draw:
    """A mask that adds ``hidden`` to the scores of later keys; queries are the last tokens."""

    def draw(_rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        tokens, keys = shape[-2:]
        return np.where(np.tri(tokens, keys, keys - tokens), 0.0, hidden)

    return draw
