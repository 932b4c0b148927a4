"""Cos and Sin of positions to rows of a constant table.

Exporters that trace a model compute the rotary tables at run time: cos(position·rate). In fp16
the angle itself is rounded (to a whole radian above 2,048), so the EP's own arithmetic cannot do
it (lowering.md, trap 2). What leads from the positions to the angles is affine, angle = p·r + c;
r and c are read off the original nodes, run at positions 0 and 1, and the result is compared with
them at others before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.extract import extract
from rewriter.nodes import constant
from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import reshaped
from rewriter.site import Site
from rewriter.tape import Tape
from rewriter.traits import position_source

ROWS = 4096
"""Positions a table holds, if no input of the model is longer."""

_FAR = 4096

Array = npt.NDArray[Any]


@lowers("Cos", emits=("Gather", "Reshape"), form="of positions", opset=13)
def cos_table(op: Tape, site: Site) -> ir.Value:
    """cos(p·r + c) as Gather(table of cosines, p)."""
    return _table(op, site, np.cos)


@lowers("Sin", emits=("Gather", "Reshape"), form="of positions", opset=13)
def sin_table(op: Tape, site: Site) -> ir.Value:
    """sin(p·r + c) as Gather(table of sines, p)."""
    return _table(op, site, np.sin)


def _table(op: Tape, site: Site, function: Callable[[Array], Array]) -> ir.Value:
    angles = site.input("input")
    positions = position_source(site.node)
    if positions is None:
        site.refuse("the angles are no affine function of integers")
    shape = site.shape(angles, "the angles")
    places = site.shape(positions, "the positions")
    evaluate = _Angles(site.node, positions, angles)
    assert angles.dtype is not None
    if constant(positions) is not None:
        return op.const(function(evaluate()), angles.dtype, name="table")
    count, size = int(np.prod(places)), int(np.prod(shape))
    site.require(size % count == 0, "positions and angles do not match")
    start, rate = _affine(site, lambda at: evaluate(at.reshape(places)), count, size // count)
    rows = max([ROWS, *_lengths(site.node)])
    table = op.const(function(_at(start, rate, np.arange(rows))), angles.dtype, name="table")
    op.note(f"rotary tables hold positions 0 to {rows - 1}; beyond them the model is not defined")
    found = op.Gather(table, positions, axis=0)
    return reshaped(op, found, shape)


class _Angles:
    """The original nodes from the positions to the angles, run by ONNX's reference."""

    def __init__(self, node: ir.Node, positions: ir.Value, angles: ir.Value) -> None:
        from onnx.reference import ReferenceEvaluator

        graph = node.graph
        assert isinstance(graph, ir.Graph)
        cut = extract(ir.Model(graph, ir_version=10), [angles], ["angles"], [positions])
        self._inputs = [value.name for value in cut.graph.inputs]
        self._dtype = positions.dtype.numpy() if positions.dtype is not None else np.int64
        self._run: Any = ReferenceEvaluator(ir.to_proto(cut)).run

    def __call__(self, positions: Array | None = None) -> Array:
        """Angles at positions; of constant positions, without any."""
        given = None if positions is None else positions.astype(self._dtype)
        return np.asarray(self._run(None, dict.fromkeys(self._inputs, given))[0])


def _affine(
    site: Site, evaluate: Callable[[Array], Array], count: int, width: int
) -> tuple[Array, Array]:
    """Start c and rate r (width) with angle = p·r + c at every place.

    Without a start both are the model's own float32, and so is every product.
    """
    at_0, at_1, far = (evaluate(np.full(count, p)).reshape(count, width)[0] for p in (0, 1, _FAR))
    start, rate = at_0, at_1
    if start.any():  # then the rate is a difference, which is exact enough only over a distance
        start, rate = at_0.astype(np.float64), (far.astype(np.float64) - at_0) / _FAR
    for probe in (np.arange(count) + 7, np.arange(count)[::-1] * 3 + 1000):
        expected = evaluate(probe).reshape(count, width)
        apart = np.abs(_at(start, rate, probe) - expected)
        scale = 1 + np.abs(expected)
        site.require(bool((apart <= 1e-6 * scale).all()), "the angles are not ordered by position")
    return start, rate


def _at(start: Array, rate: Array, positions: Array) -> Array:
    angles: Array = positions[:, None].astype(rate.dtype) * rate + start
    return angles


def _lengths(node: ir.Node) -> list[int]:
    """Lengths of the model's inputs of rank 2, such as the attention mask."""
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        return []
    shapes = [value.shape for value in graph.inputs if value.shape is not None]
    return [int(s[1]) for s in shapes if len(s) == 2 and isinstance(s[1], int)]
