"""Toy targets and models for tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from capabilities import Target, parse_rows
from rewriter.rule import Registry, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def target(*lines: str) -> Target:
    """A target of rows ``OP | FORM | VERDICT [| EVIDENCE]``; what they do not name is unknown."""
    header = "op\tform\tverdict\tversions\twhy\tevidence"
    rows = []
    for line in lines:
        op, form, verdict, *evidence = (cell.strip() for cell in line.split("|"))
        rows.append("\t".join([op, form, verdict, "*", "a toy", *(evidence or ["declared:test"])]))
    return Target("toy", "1.0", tuple(parse_rows([header, *rows], "toy")))


def chain(
    ops: Sequence[str],
    shape: Sequence[int | str] = (2, 3),
    opset: int = 22,
    build: Callable[[Builder, ir.Value], ir.Value] | None = None,
) -> ir.Model:
    """X -> op -> op -> ... -> y, one input, one output."""
    b = Builder()
    value = b.input("x", F32, shape)
    for i, op in enumerate(ops):
        value = b.op(op, value, name="y" if i == len(ops) - 1 and not build else f"v{i}")
    if build is not None:
        value = build(b, value)
    return b.model([(value, F32, shape)], opset)


def numbers(*shape: int) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def relu_as_max() -> Registry:
    """Relu(x) = Max(x, 0), with the constant named by the rule."""
    rules = Registry()

    @lowers("Relu", emits=("Max",), into=rules, name="max_zero")
    def build(op: Tape, site: Site) -> ir.Value:
        return op.Max(site.input("X"), op.const(np.float32(0), name="zero"))

    return rules
