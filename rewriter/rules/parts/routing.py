"""Which experts a token goes to, and with what weight, as one dense matrix.

Selection counts, for each expert, those that come before it: TopK leaves open which of equal
logits it takes, and HTP takes others than ORT (measured/README.md). A larger logit comes first,
of equal ones the larger index (ORT's ``moe_cpu.cc`` and ``moe_quantization_cpu.cc``). The pairs
are T·E², which is little beside a dense pass over E experts.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import static_dims
from rewriter.rules.parts.shorthand import axes, number, reshaped
from rewriter.tape import Tape

EMITS = (
    *("And", "Cast", "Div", "Equal", "Greater", "Less", "Or", "ReduceSum", "Softmax"),
    *("Unsqueeze", "Where"),
)
"""Everything that :func:`routing` builds."""
SLOTS = ("Mul", "Reshape", "Squeeze")
"""What :func:`slots` builds beside."""


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


def slots(op: Tape, logits: ir.Value, k: int, weights: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The first k experts of every token, one token after the other.

    Args:
        op: the tape.
        logits: (T, E), of a fixed T.
        k: experts of a token.
        weights: (1, T, E).

    Returns:
        Experts (T·k,) as int64, and the weight of each for every token (1, T, T·k), 0 where it
        is another token's.
    """
    tokens, experts = static_dims(logits)
    turns = op.const(np.arange(k).reshape(k, 1), logits.dtype, name="turns")
    found = op.Equal(op.Unsqueeze(_places(op, logits), axes(op, 1)), turns)
    numbers = op.const(np.arange(experts, dtype=np.int64), name="numbers")
    none = op.const(np.int64(0), name="none")
    chosen = op.ReduceSum(op.Where(found, numbers, none), axes(op, -1), keepdims=0)
    own = op.Where(found, op.Unsqueeze(op.Squeeze(weights, axes(op, 0)), axes(op, 1)),
                   number(op, logits, 0))  # fmt: skip
    shares = reshaped(op, op.ReduceSum(own, axes(op, -1), keepdims=0), (1, 1, tokens * k), "row")
    if tokens > 1:
        ones = np.repeat(np.eye(tokens), k, axis=1)[None]
        shares = op.Mul(shares, op.const(ones, logits.dtype, name="own"))
    return reshaped(op, chosen, (tokens * k,), "list"), shares


def selected(op: Tape, logits: ir.Value, k: int) -> ir.Value:
    """Which of the experts (T, E) are among the first k, as bool."""
    return op.Less(_places(op, logits), number(op, logits, k))


def _places(op: Tape, logits: ir.Value) -> ir.Value:
    """How many experts (T, E) come before each."""
    experts = _experts(logits)
    own = op.Unsqueeze(logits, axes(op, -1))
    other = op.Unsqueeze(logits, axes(op, -2))
    later = op.const(np.triu(np.ones((1, experts, experts), np.bool_), 1), name="later")
    before = op.Or(op.Greater(other, own), op.And(op.Equal(other, own), later))
    return op.ReduceSum(op.Cast(before, to=logits.dtype), axes(op, -1), keepdims=0)


def _experts(logits: ir.Value) -> int:
    assert logits.shape is not None
    return int(str(logits.shape[-1]))
