"""Inputs and outputs of the graphs that are driven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter.errors import BadInput

_NUMPY_KINDS = "biuf"


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output.

    Attributes:
        name: in its graph.
        dtype: as numpy has it.
        shape: numbers, and symbols of dims that are free.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]

    def dim(self, axis: int) -> int | None:
        """A dim that is a number; nothing for one that is free or not there."""
        dim = self.shape[axis] if axis < len(self.shape) else None
        return dim if isinstance(dim, int) else None

    def __str__(self) -> str:
        """The shape, as errors tell it."""
        return f"({', '.join(map(str, self.shape))})"


def ports(values: Iterable[ir.Value], file: str) -> dict[str, Port]:
    """Inputs or outputs by name.

    Args:
        values: of a graph.
        file: of the graph, for the error.

    Raises:
        BadInput: one is no tensor, has no shape, or a type that numpy cannot hold.
    """
    found = {}
    for value in values:
        name, dtype = value.name or "", value.dtype
        if dtype is None or value.shape is None:
            raise BadInput(f"{file}: '{name}' has no type or no shape; write the folder anew")
        kind = dtype.numpy()
        if kind.kind not in _NUMPY_KINDS or not kind.isbuiltin:
            raise BadInput(
                f"{file}: '{name}' is {dtype.name.lower()}, which no runtime's Python API takes; "
                "use a model whose inputs and outputs are float16 or float32"
            )
        shape = (
            d if isinstance(d, int) else d.value or f"{name}:{axis}"
            for axis, d in enumerate(value.shape)
        )
        found[name] = Port(name, kind, tuple(shape))
    return found
