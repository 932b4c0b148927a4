"""What rounding the constants that a rule wrote into a graph of halves can cost."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
import onnx_ir as ir

from rewriter.parity.widen import HALVES, widened

_SIMPLE = 7
"""Bits of a number that was hardly rounded: float16 has eleven, bfloat16 eight."""


def nudged(model: ir.Model, original: ir.Model) -> ir.Model | None:
    """A model in float32, its new constants off by what rounding them to halves can cost.

    A rule that writes a scale of 80^-0.5 into a float16 graph has no closer number for it, nor
    has a table of cosines that was folded. What takes few bits, as 0.5 does, was not rounded, and
    weights in another order are the same weights.

    Args:
        model: with halves; it is left as it is.
        original: what it was made from.

    Returns:
        ``None`` if there are no such constants.
    """
    wide, found = widened(model), False
    known, rng = _Known(original), np.random.default_rng(0)
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.dtype not in HALVES or known.has(name, tensor):
            continue
        numbers = tensor.numpy().astype(np.float32)
        mantissas = np.frexp(numbers)[0] * 2**_SIMPLE
        rounded = np.isfinite(numbers) & (mantissas != np.round(mantissas))
        if rounded.any():
            steps = np.abs(np.spacing(tensor.numpy())).astype(np.float32) / 2
            signs = rng.choice(np.array([-1, 1]), numbers.shape) if numbers.size > 1 else 1
            moved = np.where(rounded, numbers + signs * steps, numbers).astype(np.float32)
            wide.graph.initializers[name].const_value = ir.tensor(moved, name=name)
            found = True
    return wide if found else None


class _Known:
    """Constants that a model has, by name or by what is in them."""

    def __init__(self, model: ir.Model) -> None:
        self._names: set[str] = set()
        self._sizes: defaultdict[int, list[ir.TensorProtocol]] = defaultdict(list)
        self._held: dict[int, set[bytes]] = {}
        stored = [(v.name, v.const_value) for v in model.graph.initializers.values()]
        stored += [
            (node.outputs[0].name, node.attributes["value"].as_tensor())
            for node in model.graph
            if node.op_type == "Constant" and "value" in node.attributes
        ]
        for name, tensor in stored:
            if tensor is not None and tensor.dtype in HALVES:
                self._names.add(name or "")
                self._sizes[tensor.size].append(tensor)

    def has(self, name: str, tensor: ir.TensorProtocol) -> bool:
        """Whether a constant has the name, or the same numbers in any order."""
        if name in self._names:
            return True
        if tensor.size not in self._held:
            self._held[tensor.size] = {_content(t) for t in self._sizes[tensor.size]}
        return _content(tensor) in self._held[tensor.size]


def _content(tensor: ir.TensorProtocol) -> bytes:
    numbers = np.sort(tensor.numpy().astype(np.float32).reshape(-1))
    return hashlib.sha256(numbers.tobytes()).digest()
