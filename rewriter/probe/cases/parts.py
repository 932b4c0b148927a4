"""What the modules of cases share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from rewriter.probe.case import FLOATS, OPSET, Case, Forms, Outputs
from rewriter.probe.graph import Given, Graph
from rewriter.probe.operands import run, value

WIDE = (*FLOATS, "int32", "int64", "bool")
"""Types that no EP refuses as such."""


def shaped(output: ir.Value, *dims: int | str) -> ir.Value:
    """The output with the shape that the graph declares; what it follows from is not stored."""
    output.shape = ir.Shape(dims)
    return output


def without(outputs: Sequence[ir.Value], *left: int) -> list[ir.Value]:
    """The outputs of a node, of which those at some places are left out."""
    for place in left:
        outputs[place].name = ""
    return [output for output in outputs if output.name]


def inside(
    form: Forms,
    what: str,
    dtypes: Sequence[str],
    shape: tuple[int, ...],
    *more: Given,
    opset: int = OPSET,
    quick: bool = False,
    **attributes: Any,
) -> Iterator[Case]:
    """A node among others, so that its first operand and its output are not the graph's own.

    The graph's input has one dim less: some versions hang on fewer.
    """
    first, second, *others = shape
    for dtype in dtypes:

        def build(graph: Graph) -> Outputs:
            x = graph.op("Reshape", run(first * second, *others), value(list(shape)))
            made = graph.op(form.op, x, *more, **attributes)
            return graph.op("Reshape", made, value([-1]))

        yield form.graph(what, dtype, build, opset=opset, quick=quick)


def declared(
    form: Forms,
    what: str,
    dtype: str,
    operands: Sequence[Given],
    shapes: Sequence[tuple[int | str, ...] | None],
    attributes: Mapping[str, Any] | None = None,
    /,
    **settings: Any,
) -> Case:
    """A node alone whose outputs have these shapes; one that is None is left out."""

    def build(graph: Graph) -> Outputs:
        outputs = graph.ops(form.op, operands, attributes or {}, len(shapes))
        for output, shape in zip(outputs, shapes, strict=True):
            output.shape = None if shape is None else ir.Shape(shape)
        return without(outputs, *(i for i, shape in enumerate(shapes) if shape is None))

    return form.graph(what, dtype, build, **settings)
