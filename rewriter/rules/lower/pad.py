"""Pad written out: constants around x, or a Gather of the elements that repeat.

Every axis gets ``before`` and ``after`` more elements, or loses them where a count is negative
(onnx Operators.md, Pad 24). HTP loses a fill value other than 0 beside some other ops (Expand,
Relu, Softmax, MatMul, ...), repeats wrong edges, and pads no integers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped, sliced
from rewriter.site import Site
from rewriter.tape import Tape

_END = np.iinfo(np.int64).max


@lowers("Pad", emits=("Concat", "Expand", "Gather", "Reshape", "Slice"), opset=13)
def pieces_beside(op: Tape, site: Site) -> ir.Value:
    """Concat(fill, x, fill) along every padded axis; for other modes Gather(x, repeated)."""
    x, mode = site.input("data"), site.attribute("mode")
    counts = site.constant(site.input("pads"), "pads").tolist()
    fill = site.optional("constant_value")
    rank = len(site.shape(x, "data"))
    given = site.optional("axes")
    axes = range(rank) if given is None else site.constant(given, "axes").tolist()
    half = len(counts) // 2
    for axis, before, after in zip(axes, counts[:half], counts[half:], strict=True):
        if before == after == 0:
            continue
        if mode == "constant":
            x = _filled(op, site, x, axis % rank, before, after, fill)
        else:
            x = _repeated(op, site, x, axis % rank, before, after, mode)
    return x


def _filled(
    op: Tape,
    site: Site,
    x: ir.Value,
    axis: int,
    before: int,
    after: int,
    fill: ir.Value | None,
) -> ir.Value:
    shape = list(site.shape(x, "data"))
    if before < 0 or after < 0:
        left = shape[axis] + min(before, 0) + min(after, 0)
        site.require(left > 0, "nothing is left of an axis")
        x = sliced(op, x, -min(before, 0), after if after < 0 else _END, axis, 1)

    def piece(count: int) -> list[ir.Value]:
        if count <= 0:
            return []
        shape[axis] = count
        stored = constant(fill)
        if fill is None or stored is not None:
            number = 0 if stored is None else stored.numpy().reshape(-1)[0]
            return [op.const(np.full(shape, number), x.dtype, name="fill")]
        one = reshaped(op, fill, [1] * len(shape))
        return [op.Expand(one, op.const(np.array(shape, np.int64), name="shape"))]

    pieces = [*piece(before), x, *piece(after)]
    return x if len(pieces) == 1 else op.Concat(*pieces, axis=axis)


def _repeated(
    op: Tape, site: Site, x: ir.Value, axis: int, before: int, after: int, mode: str
) -> ir.Value:
    size = site.shape(x, "data")[axis]
    site.require(min(before, after) >= 0, f"a negative pad with mode={mode} is not handled")
    most = size - 1 if mode == "reflect" else _END
    site.require(max(before, after) <= most, "it reflects more elements than there are")
    at = np.pad(np.arange(size), (before, after), mode)  # type: ignore[call-overload]  # the mode is text here, a Literal in numpy's stub
    return op.Gather(x, op.const(at.astype(np.int64), name="at"), axis=axis)
