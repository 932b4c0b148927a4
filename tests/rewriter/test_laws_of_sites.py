"""Laws 6 to 9 of the engine: what a rule reads of a node, and what it may build."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.attempt import RuleError
from rewriter.commit import BadBuild
from rewriter.errors import RewriteError
from rewriter.lowering import Stuck, lower, plan
from rewriter.rule import Registry, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from tests import toys
from tests.decoders import decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def test_law_6_a_rule_returns_all_outputs_and_the_node_takes_its_own() -> None:
    """One rule serves nodes with one output and with four, absent ones in the middle (D45)."""
    everything = toys.target("com.microsoft::SkipSimplifiedLayerNormalization | any | illegal")
    for names in (["y"], ["y", "", "", "sum"]):
        b = Builder()
        x, skip = (b.input(name, F32, (1, 2, 4)) for name in ("x", "skip"))
        gamma = b.const("gamma", np.ones(4, np.float32))
        outputs = b.node("com.microsoft::SkipSimplifiedLayerNormalization", [x, skip, gamma], names)
        kept = [v for v in outputs if v.name]
        model = b.model([(v, F32, (1, 2, 4)) for v in kept])
        lower(model, everything)
        assert [v.name for v in model.graph.outputs] == [n for n in names if n]


def test_law_6_an_output_that_is_used_and_not_produced_is_a_refusal() -> None:
    b = Builder()
    x = b.input("x", F32, (1, 2, 4))
    gamma = b.const("gamma", np.ones(4, np.float32))
    outputs = b.node(
        "com.microsoft::SkipSimplifiedLayerNormalization", [x, x, gamma], ["y", "mean"]
    )
    model = b.model([(outputs[0], F32, (1, 2, 4)), (outputs[1], F32, (1, 2, 1))])
    rows = toys.target("com.microsoft::SkipSimplifiedLayerNormalization | any | illegal")
    with pytest.raises(Stuck, match="output mean is used and not produced"):
        lower(model, rows)


def test_law_7_an_attribute_nobody_read_is_a_refusal() -> None:
    """D44: a rule fired on an attribute it never mentioned, and lost it."""
    rules = Registry()

    @lowers("Gemm", emits=("MatMul",), into=rules)
    def forgetful(op: Tape, site: Site) -> ir.Value:
        return op.MatMul(site.input("A"), site.input("B"))

    def gemm(**attributes: float) -> ir.Model:
        b = Builder()
        a, c = b.input("a", F32, (3, 3)), b.input("c", F32, (3, 3))
        return b.model([(b.op("Gemm", a, c, name="y", **attributes), F32, (3, 3))])

    rows = toys.target("Gemm | any | illegal")
    lower(gemm(), rows, rules=rules)
    lower(gemm(alpha=1.0, transB=0), rows, rules=rules)  # written out, but the default
    with pytest.raises(Stuck, match="transB=1 is not handled"):
        lower(gemm(transB=1), rows, rules=rules)
    with pytest.raises(Stuck, match=r"alpha=0\.5 is not handled"):
        lower(gemm(alpha=0.5), rows, rules=rules)


def test_law_7_an_optional_input_nobody_read_is_a_refusal() -> None:
    rules = Registry()

    @lowers("Clip", emits=("Max",), into=rules)
    def lower_bound(op: Tape, site: Site) -> ir.Value:
        return op.Max(site.input("input"), site.input("min"))

    b = Builder()
    x, low, high = (b.input(n, F32, ()) for n in ("x", "low", "high"))
    model = b.model([(b.op("Clip", x, low, high, name="y"), F32, ())])
    with pytest.raises(Stuck, match="max is not handled"):
        lower(model, toys.target("Clip | any | illegal"), rules=rules)


def test_law_7_floats_compare_as_they_are_stored() -> None:
    rows = toys.target("SimplifiedLayerNormalization | epsilon=1e-6 | illegal")
    model = decoder()
    stored = ir.from_proto(ir.to_proto(model))
    assert plan(stored, rows).stuck == plan(model, rows).stuck == []
    assert plan(stored, rows).sites()["rms_primitives", "SimplifiedLayerNormalization"] == 1


def test_law_8_new_values_have_dtype_and_shape_without_any_value_info() -> None:
    seen: list[tuple[ir.DataType | None, str]] = []
    rules = Registry()

    @lowers("Relu", emits=("Unsqueeze", "Max", "Squeeze"), into=rules)
    def through_rank_3(op: Tape, site: Site) -> ir.Value:
        axes = op.const(np.array([0], np.int64), name="axes")
        wide = op.Unsqueeze(site.input("X"), axes)
        seen.append((wide.dtype, str(wide.shape)))
        zero = op.const(np.float32(0), name="zero")
        return op.Squeeze(op.Max(wide, zero), axes)

    model = toys.chain(["Relu"])
    lower(model, toys.target("Relu | any | illegal"), rules=rules)
    assert seen == [(F32, "[1,2,3]")]
    assert all(v.dtype is not None and v.shape is not None for n in model.graph for v in n.outputs)


def test_law_9_what_a_rule_builds_has_to_be_declared() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Max[A dtype float16]",), into=rules, name="undeclared")
    def build(op: Tape, site: Site) -> ir.Value:
        return op.Abs(site.input("X"))

    with pytest.raises(RewriteError, match="undeclared built Abs, which it does not declare"):
        lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)


def test_law_9_the_opset_is_raised_only_where_no_node_changes_its_meaning() -> None:
    """D48: a rule that emits a newer op left the opset as it was."""
    rules = Registry()

    @lowers("Relu", emits=("Gelu",), into=rules, opset=20)
    def newer(op: Tape, site: Site) -> ir.Value:
        return op.Gelu(site.input("X"))

    rows = toys.target("Relu | any | illegal")
    model = toys.chain(["Relu", "Sigmoid"], opset=18)
    lower(model, rows, rules=rules)
    assert model.opset_imports[""] == 20
    kept = toys.chain(["Relu", "Sigmoid"], opset=22)
    lower(kept, rows, rules=rules)
    assert kept.opset_imports[""] == 22
    old = toys.chain(["Relu", "Softmax"], opset=12)  # the default axis changed in 13
    with pytest.raises(Stuck, match=r"needs opset 20, but Softmax .* means something else"):
        lower(old, rows, rules=rules)
    assert old.opset_imports[""] == 12


def test_law_9_an_op_that_the_opset_lacks_is_a_fault_of_the_rule() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Gelu",), into=rules)
    def too_new(op: Tape, site: Site) -> ir.Value:
        return op.Gelu(site.input("X"))

    with pytest.raises((BadBuild, RuleError), match="Gelu"):
        lower(toys.chain(["Relu"], opset=18), toys.target("Relu | any | illegal"), rules=rules)
