"""An If with a constant condition becomes its branch, with the same results."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from capabilities import target
from rewriter.lowering import lower
from rewriter.passes.fold_shapes import settle_shapes
from rewriter.passes.take_branches import TakeBranches
from tests import ort
from tests.graphs import Builder

F32, I64, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL


def _branch(name: str, build: Builder, *results: ir.Value) -> ir.Graph:
    for value in results:
        value.type, value.shape = value.type or ir.TensorType(F32), value.shape or ir.Shape((2, 3))
    return ir.Graph([], results, nodes=build.nodes, initializers=build.initializers, name=name)


def _constant(build: Builder, name: str, value: float) -> ir.Value:
    table = ir.tensor(np.full((2, 3), value, np.float32))
    return build.op("Constant", name=name, value=table)


def _model(length: int) -> ir.Model:
    """A sum and a table: the table of 1 if x has more than 4 rows, that of 2 otherwise."""
    b = Builder()
    x = b.input("x", F32, (length, 2, 3))
    shape = b.op("Shape", x, name="shape")
    rows = b.op("Gather", shape, b.const("first", np.array(0)), name="rows")
    many = b.op("Greater", rows, b.const("four", np.array(4)), name="many")
    long, short = Builder(), Builder()
    one, three = _constant(long, "long_table", 1), _constant(long, "other_table", 3)
    weight = short.const("four", np.full((2, 3), 2, np.float32))  # its name is taken outside
    two = short.op("Identity", weight, name="short_table")
    table, again = b.node(
        "If",
        [many],
        ["table", "again"],
        then_branch=_branch("long", long, one, three),
        else_branch=_branch("short", short, two, weight),
    )
    y = b.op("Add", x, table, name="y")
    return b.model([(y, F32, (length, 2, 3)), (again, F32, (2, 3))])


def test_the_branch_gives_the_same() -> None:
    for length in (3, 6):
        model = _model(length)
        x = np.random.default_rng(0).standard_normal((length, 2, 3)).astype(np.float32)
        expected = ort.run(model, {"x": x})
        notes = settle_shapes(model)
        assert "If" not in {n.op_type for n in model.graph}
        branch = "then_branch" if length > 4 else "else_branch"
        assert notes == [
            f"If 'table/If' always takes its {branch} with these dims; the other one is gone"
        ]
        assert "table" in {v.name for n in model.graph for v in n.outputs}
        actual = ort.run(model, {"x": x})
        assert list(actual) == ["y", "again"]
        for name, array in expected.items():
            assert np.array_equal(array, actual[name])


def test_a_condition_known_at_run_time_stays() -> None:
    b = Builder()
    condition = b.input("condition", BOOL, ())
    sides = {}
    for side, value in (("then_branch", 1.0), ("else_branch", 2.0)):
        inner = Builder()
        sides[side] = _branch(side, inner, _constant(inner, f"{side}_table", value))
    table = b.op("If", condition, name="table", **sides)
    model = b.model([(table, F32, (2, 3))])
    assert not TakeBranches()(model).modified
    assert settle_shapes(model) == []


def test_branches_within_branches() -> None:
    b = Builder()
    x = b.input("x", F32, (2, 3))
    yes = b.const("yes", np.array(True))
    inner, outer = Builder(), Builder()
    deep = _branch("deep", inner, inner.op("Neg", x, name="negated"))
    other = Builder()
    other_branch = _branch("other", other, _constant(other, "nothing", 0))
    nested = outer.op("If", yes, name="nested", then_branch=deep, else_branch=other_branch)
    last = Builder()
    last_branch = _branch("last", last, _constant(last, "nothing_at_all", 0))
    y = b.op("If", yes, name="y", then_branch=_branch("outer", outer, nested),
             else_branch=last_branch)  # fmt: skip
    model = b.model([(y, F32, (2, 3))])
    given = {"x": np.ones((2, 3), np.float32)}
    report = lower(model, target("qnn", "2.7.0"))
    assert [n.op_type for n in model.graph] == ["Neg"]
    assert len(report.notes) == 2
    assert np.array_equal(ort.run(model, given)["y"], -given["x"])
