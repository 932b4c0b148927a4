"""What a mask holds, as far as the nodes that make it tell: which numbers, and whether a row sees.

Numbers far below any score hide a key; what is nearer to 0 is an offset, such as ALiBi's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.facts import constant, op_of

_SCORE = -1e3
"""Numbers above this are offsets of scores that stay in the race."""
_LAYOUT = frozenset({
    "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
_DEEP = 32


def numbers_below(value: ir.Value | None, deep: int = _DEEP) -> frozenset[float] | None:
    """The numbers below any offset that a mask may hold; ``None`` if its nodes do not tell."""
    stored = constant(value)
    if value is None or deep == 0:
        return None
    if stored is not None:
        array = stored.numpy().astype(np.float64)
        return frozenset(np.unique(array[array < _SCORE]).tolist())
    producer = value.producer()
    inputs = () if producer is None else producer.inputs
    if producer is not None and op_of(producer) == "Where":
        sources = inputs[1:]
    elif producer is not None and op_of(producer) == "Concat":
        sources = inputs
    elif producer is not None and op_of(producer) in _LAYOUT:
        sources = inputs[:1]
    else:
        return None
    found = [numbers_below(source, deep - 1) for source in sources]
    known = [numbers for numbers in found if numbers is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def sees_in_every_row(mask: ir.Value, *, seen: bool = True) -> bool:
    """Whether a mask (bool, or added) is known, and hides no row whole."""
    array = _known(mask)
    if array is None:
        return False
    shown = array == seen if array.dtype == np.bool_ else array.astype(np.float64) >= _SCORE
    return bool(shown.any(axis=-1).all())


def _known(mask: ir.Value) -> npt.NDArray[Any] | None:
    """A constant, or what a constant condition selects from two constants."""
    producer = mask.producer()
    selected = producer is not None and op_of(producer) == "Where"
    sources = producer.inputs if selected and producer is not None else (mask,)
    stored = [tensor.numpy() for source in sources if (tensor := constant(source)) is not None]
    if len(stored) < len(sources):
        return None
    return np.where(*stored) if selected else stored[0]
