"""What constants alone make of a value, computed by onnx's reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.extract import extract
from rewriter.nodes import constant, dims_of, present

_MOST = 1 << 24
"""Elements of a value that is still looked at."""
_MOST_IN_ALL = 1 << 27
"""Elements of all values on the way to it, which the reference keeps until it is done."""


def computed(value: ir.Value, imports: Mapping[str, int]) -> npt.NDArray[Any] | None:
    """What a value holds, if it is made of constants alone, small enough, by ops of ai.onnx.

    Args:
        value: of any graph.
        imports: opset imports where it is.
    """
    from onnx.reference import ReferenceEvaluator

    stored = constant(value)
    if stored is not None:
        return np.asarray(stored.numpy()) if stored.size <= _MOST else None
    if not _of_constants(value):
        return None
    around = ir.Graph([], [], nodes=[], opset_imports=dict(imports), name="computed")
    alone = extract(ir.Model(around, ir_version=10), [value], ["computed"], ())
    try:
        (array,) = ReferenceEvaluator(ir.to_proto(alone)).run(None, {})
    except Exception:  # whatever it cannot compute is not known
        return None
    return np.asarray(array)


def _of_constants(value: ir.Value) -> bool:
    """Whether nothing but constants is above a value, and nothing large between."""
    waiting, seen = [value], set[ir.Value]()
    held = 0
    while waiting:
        one = waiting.pop()
        if one in seen or constant(one) is not None:
            continue
        seen.add(one)
        producer = one.producer()
        held += _size(one)
        if producer is None or _size(one) > _MOST or held > _MOST_IN_ALL:
            return False
        waiting += [v for v in producer.inputs if v is not None and present(v)]
    return True


def _size(value: ir.Value) -> int:
    """Elements of a value; too many where a dim is not known."""
    dims = dims_of(value)
    if dims is None:
        return _MOST + 1
    return int(np.prod([_MOST + 1 if d is None else max(d, 1) for d in dims], dtype=np.float64))
