"""What a mask holds, as far as the nodes that make it tell: which numbers, and whether a row sees.

Numbers far below any score hide a key; what is nearer to 0 is an offset, such as ALiBi's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from rewriter.computed import computed
from rewriter.nodes import constant, op_of

_SCORE = -1e3
"""Numbers above this are offsets of scores that stay in the race."""
_LAYOUT = frozenset({
    "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
_DEEP = 32
LOWEST = {
    ir.DataType.BFLOAT16: -3.3895313892515355e38,
    ir.DataType.DOUBLE: float(np.finfo(np.float64).min),
    ir.DataType.FLOAT: float(np.finfo(np.float32).min),
    ir.DataType.FLOAT16: -65504.0,
}
"""The lowest number of a type, which ONNX Runtime 1.32 takes for -inf in the mask of an Attention;
onnx's reference and OpenVINO do not."""
SWALLOWS = -1e8
"""At or below this a row of a float32 mask leaves nothing of the scores: the steps are 8 wide."""


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
    if producer is not None and op_of(producer) == "Max":
        return _raised(inputs, deep)
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


def _raised(inputs: Sequence[ir.Value | None], deep: int) -> frozenset[float] | None:
    """The same of the larger of a mask and a number."""
    bound = constant(inputs[-1])
    if len(inputs) != 2 or bound is None or bound.size != 1:
        return None
    numbers, least = numbers_below(inputs[0], deep - 1), float(bound.numpy().item())
    if numbers is None:
        return None
    return frozenset(higher for number in numbers if (higher := max(number, least)) < _SCORE)


def sees_in_every_row(mask: ir.Value, opset: int, *, seen: bool = True) -> bool:
    """Whether a mask (bool, or added) is known, and hides no row whole."""
    array = computed(mask, {"": opset})
    if array is None:
        return False
    shown = array == seen if array.dtype == np.bool_ else array.astype(np.float64) >= _SCORE
    return bool(shown.any(axis=-1).all())


def hidden_whole(mask: ir.Value, far: float) -> tuple[bool, bool]:
    """Whether a row that a float mask hides whole gives 0, and whether it has equal weights.

    If neither, it has the weights of the scores. What is not known, or mixed, gives 0.

    Args:
        mask: of an ai.onnx Attention.
        far: numbers from here down hide.
    """
    numbers = numbers_below(mask)
    if numbers is None:
        return True, False
    low = {number for number in numbers if number <= far}
    swallow = {number <= SWALLOWS for number in low}
    assert mask.dtype is not None
    lowest = LOWEST.get(mask.dtype, -np.inf)
    return len(swallow) > 1 or any(number <= lowest for number in low), swallow == {True}
