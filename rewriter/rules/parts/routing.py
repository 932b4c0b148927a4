"""Which experts a token goes to, and with what weight, as one dense matrix.

Selection counts, for each expert, those that come before it: TopK leaves open which of equal
logits it takes, and HTP takes others than ORT (measured/README.md). A larger logit comes first,
of equal ones the larger index (ORT's ``moe_cpu.cc`` and ``moe_quantization_cpu.cc``). The pairs
are T·E², which is little beside a dense pass over E experts.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rules.parts.shorthand import axes, number
from rewriter.tape import Tape

EMITS = (
    *("And", "Cast", "Div", "Equal", "Greater", "Less", "Or", "ReduceSum", "Softmax"),
    *("Unsqueeze", "Where"),
)
"""Everything that is built here."""


def routing(
    op: Tape, logits: ir.Value, k: int, *, normalize: bool, mixing: ir.Value | None = None
) -> ir.Value:
    """The weight of every expert for every token, 0 where it is not among the first k.

    Args:
        op: the tape.
        logits: (T, E), what is selected by; the softmax of all of them is the weight.
        k: experts of a token.
        normalize: the weights of a token add up to 1.
        mixing: (T, E), the weights themselves; ORT leaves out those up to 1e-8.

    Returns:
        Weights (1, T, E).
    """
    experts = _experts(logits)
    chosen = selected(op, logits, k) if k < experts else None
    if mixing is None and normalize:
        assert logits.dtype is not None
        rest = number(op, logits, float(logits.dtype.min))
        kept = logits if chosen is None else op.Where(chosen, logits, rest)
        weights = op.Softmax(kept, axis=-1)
    else:
        weights = op.Softmax(logits, axis=-1) if mixing is None else mixing
        zero = number(op, logits, 0)
        weights = weights if chosen is None else op.Where(chosen, weights, zero)
        if normalize:
            total = op.ReduceSum(weights, axes(op, -1), keepdims=1)
            empty = op.Equal(total, zero)
            shares = op.Div(weights, op.Where(empty, number(op, logits, 1), total))
            weights = op.Where(empty, zero, shares)
        if mixing is not None:
            weights = op.Where(op.Greater(weights, number(op, logits, 1e-8)), weights, zero)
    return op.Unsqueeze(weights, axes(op, 0))


def selected(op: Tape, logits: ir.Value, k: int) -> ir.Value:
    """Which of the experts (T, E) are among the first k, as bool."""
    experts = _experts(logits)
    own = op.Unsqueeze(logits, axes(op, -1))
    other = op.Unsqueeze(logits, axes(op, -2))
    later = op.const(np.triu(np.ones((1, experts, experts), np.bool_), 1), name="later")
    before = op.Or(op.Greater(other, own), op.And(op.Equal(other, own), later))
    place = op.ReduceSum(op.Cast(before, to=logits.dtype), axes(op, -1), keepdims=0)
    return op.Less(place, number(op, logits, k))


def _experts(logits: ir.Value) -> int:
    assert logits.shape is not None
    return int(str(logits.shape[-1]))
