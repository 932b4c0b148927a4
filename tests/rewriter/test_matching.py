"""What our matcher adds to onnxscript's: numbers in Constant nodes, checks that choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from rewriter.matching import find
from rewriter.rule import Registry, fuses
from rewriter.rules.parts.patterns import number, scaled
from rewriter.site import Site
from rewriter.tape import Tape
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
SHAPE = (2, 3)


def constant_node(b: Builder, name: str, value: float) -> ir.Value:
    return b.op("Constant", name=name, value=ir.tensor(np.float32(value)))


def test_numbers_in_constant_nodes_are_numbers() -> None:
    """As torch's older exporter writes a GELU: HTP has no Erf by itself."""
    b = Builder()
    x = b.input("x", F32, SHAPE)
    root, one, half = (
        constant_node(b, name, value) for name, value in (("r", 2**0.5), ("1", 1), ("h", 0.5))
    )
    erf = b.op("Erf", b.op("Div", x, root, name="z"), name="erf")
    y = b.op("Mul", b.op("Mul", x, b.op("Add", erf, one, name="s"), name="p"), half, name="y")
    model = b.model([(y, F32, SHAPE)], 20)
    given = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}
    expected = ort.run(model, given)["y"]
    lower(model, target("qnn", "2.7.0"))
    assert [node.op_type for node in model.graph] == ["Gelu"]
    assert ort.worst(expected, ort.run(model, given)["y"]) < 1e-6


def _pattern(op: Any) -> Any:
    from onnxscript.rewriter.pattern import Var

    return op.Relu(scaled(op, Var("x"), "factor"))


@pytest.mark.parametrize(
    ("other", "number_is_taken"),
    [(np.float32(2), True), (np.full(3, 2, np.float32), False), (np.array([2]), False)],
    ids=["number", "row", "integer"],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_check_chooses_between_alternatives(
    other: Any, number_is_taken: bool, first: bool
) -> None:
    """A product is a scaled value only if one factor is a number."""
    b = Builder()
    x = b.input("x", ir.DataType.INT64 if other.dtype == np.int64 else F32, SHAPE)
    factors = [x, b.const("c", other)]
    product = b.op("Mul", *(factors[::-1] if first else factors), name="product")
    y = b.op("Relu", product, name="y")
    model = b.model([(y, x.dtype or F32, SHAPE)])
    rules = Registry()

    @fuses("Relu", pattern=_pattern, emits=("Relu",), into=rules)
    def never(op: Tape, site: Site) -> ir.Value:
        raise AssertionError(op, site)

    assert isinstance(model.graph, ir.Graph)
    match = find(rules.fusing("Relu")[0], model, model.graph, model.graph[-1])
    assert match is not None
    assert ("factor" in match.bound) is number_is_taken
    assert match.bound["x"] is (x if number_is_taken else product)
    assert number("any").check_method is not None
