"""The fifteen laws of the engine (README, "How it decides"), each with a test of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.attempt import RuleError
from rewriter.commit import RULE, SOURCE, BadBuild
from rewriter.errors import RewriteError
from rewriter.lowering import Stuck, lower, plan
from rewriter.rule import Registry, fuses, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from rewriter.wellformed import faults
from tests import ort, toys
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def relu_as_max() -> Registry:
    """Relu(x) = Max(x, 0), with the constant named by the rule."""
    rules = Registry()

    @lowers("Relu", emits=("Max",), into=rules, name="max_zero")
    def build(op: Tape, site: Site) -> ir.Value:
        return op.Max(site.input("X"), op.const(np.float32(0), name="zero"))

    return rules


def test_law_1_two_rules_for_one_form_need_an_order() -> None:
    rules = relu_as_max()

    def other(op: Tape, site: Site) -> ir.Value:
        return op.Identity(site.input("X"))

    with pytest.raises(ValueError, match=r"'max_zero' and 'other' both take Relu \[any\]"):
        lowers("Relu", emits=("Identity",), into=rules)(other)
    lowers("Relu", emits=("Identity",), into=rules, order=1)(other)
    assert [rule.name for rule in rules.lowering("Relu")] == ["max_zero", "other"]


def test_law_1_the_lower_order_is_tried_first() -> None:
    rules = relu_as_max()

    @lowers("Relu", emits=("LeakyRelu",), into=rules, order=-1)
    def leaky(op: Tape, site: Site) -> ir.Value:
        return op.LeakyRelu(site.input("X"), alpha=0.0)

    report = lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)
    assert [fired.rule for fired in report.fired] == ["leaky"]


def test_law_2_a_refusal_leaves_no_trace() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Neg", "Abs"), into=rules)
    def changes_its_mind(op: Tape, site: Site) -> ir.Value:
        op.Neg(op.Abs(site.input("X")))
        op.const(np.arange(3.0), name="left over")
        return site.refuse("on second thought")

    model = toys.chain(["Relu", "Sigmoid"])
    before, uses = ir.to_proto(model), len(model.graph.inputs[0].uses())
    with pytest.raises(Stuck, match="on second thought"):
        lower(model, toys.target("Relu | any | illegal"), rules=rules)
    assert ir.to_proto(model) == before
    report = lower(model, toys.target("Relu | any | illegal"), rules=rules, allow_stuck=True)
    assert report.stuck
    assert len(model.graph.inputs[0].uses()) == uses
    assert [n.op_type for n in model.graph] == ["Relu", "Sigmoid"]
    assert not model.graph.initializers


def test_law_2_a_plan_changes_nothing() -> None:
    model = decoder(Decoder(weights="int4"))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    report = plan(model, toys.target("com.microsoft::MatMulNBits | any | illegal"))
    assert report.sites()["dequantize_and_matmul", "com.microsoft::MatMulNBits"] == 11
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_law_3_a_rule_does_not_take_its_own_output_again() -> None:
    rules = Registry()

    @lowers("Relu", emits=("LeakyRelu",), into=rules)
    def there(op: Tape, site: Site) -> ir.Value:
        return op.LeakyRelu(site.input("X"), alpha=0.0)

    @lowers("LeakyRelu", emits=("Relu",), into=rules)
    def back(op: Tape, site: Site) -> ir.Value:
        site.number("alpha")
        return op.Relu(site.input("X"))

    rows = toys.target("Relu | any | illegal", "LeakyRelu | any | illegal")
    chain = r"there\(Relu \[any\]\) -> back\(LeakyRelu \[any\]\) -> there\(Relu \[any\]\)"
    with pytest.raises(Stuck, match=chain):
        lower(toys.chain(["Relu"]), rows, rules=rules)


def test_law_3_a_replacement_that_is_illegal_for_the_same_reason_is_none() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Relu",), into=rules)
    def again(op: Tape, site: Site) -> ir.Value:
        return op.Relu(site.input("X"))

    with pytest.raises(Stuck, match=r"what it builds is illegal for the same reason \[any\]"):
        lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)


def test_law_3_a_budget_ends_rules_that_feed_each_other_new_forms() -> None:
    rules = Registry()

    @lowers("LeakyRelu", emits=("LeakyRelu", "Relu"), into=rules)
    def bigger(op: Tape, site: Site) -> ir.Value:
        site.number("alpha")
        values = [op.LeakyRelu(site.input("X"), alpha=0.1) for _ in range(2)]
        return op.LeakyRelu(values[0], alpha=site.number("alpha") + 1)

    def judged(alpha: int) -> str:
        return f"LeakyRelu | alpha={alpha} | illegal"

    many = toys.target(*(judged(a) for a in range(300)))
    model = toys.chain([])
    b = Builder()
    x = b.input("x", F32, (2, 3))
    model = b.model([(b.op("LeakyRelu", x, name="y", alpha=0.0), F32, (2, 3))])
    with pytest.raises(RuleError, match="do not come to an end; the last chain is bigger"):
        lower(model, many, rules=rules)


def test_law_4_an_input_is_never_renamed_to_an_output() -> None:
    """D42: the model's input was then called as its output."""
    rules = Registry()

    @lowers("Dropout", emits=(), into=rules)
    def nothing(op: Tape, site: Site) -> ir.Value:
        del op
        return site.input("data")

    model = toys.chain(["Dropout"])
    lower(model, toys.target("Dropout | any | illegal"), rules=rules)
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert [v.name for v in model.graph.outputs] == ["y"]
    assert [n.op_type for n in model.graph] == ["Identity"]
    x = toys.numbers(2, 3)
    assert np.array_equal(ort.run(model, {"x": x})["y"], x)


def test_law_4_one_value_for_two_outputs_keeps_both_names() -> None:
    """D42: two outputs were left with one name, and the checker said nothing."""
    rules = Registry()

    @lowers("Split", emits=("Relu",), into=rules)
    def twice(op: Tape, site: Site) -> Sequence[ir.Value]:
        site.ignore("split", "axis", "num_outputs")
        value = op.Relu(site.input("input"))
        return value, value

    b = Builder()
    x = b.input("x", F32, (2, 3))
    one, two = b.node("Split", [x], ["one", "two"], axis=0, num_outputs=2)
    model = b.model([(one, F32, (2, 3)), (two, F32, (2, 3))])
    lower(model, toys.target("Split | any | illegal"), rules=rules)
    assert [v.name for v in model.graph.outputs] == ["one", "two"]
    assert not list(faults(model))


def test_law_4_a_changed_interface_is_an_error() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Transpose",), into=rules)
    def turned(op: Tape, site: Site) -> ir.Value:
        value = op.Transpose(site.input("X"), perm=[1, 0])
        site.node.outputs[0].shape = ir.Shape([3, 2])
        return value

    model = toys.chain(["Relu"])
    with pytest.raises(RewriteError, match="inputs and outputs changed"):
        lower(model, toys.target("Relu | any | illegal"), rules=rules)
    assert [n.op_type for n in model.graph] == ["Relu"]


def test_law_5_two_constants_of_one_name_are_two_initializers() -> None:
    """D41 of the public reports: the second overwrote the first."""
    rules = Registry()

    @lowers("LeakyRelu", emits=("Add",), into=rules)
    def shift(op: Tape, site: Site) -> ir.Value:
        return op.Add(site.input("X"), op.const(np.float32(site.number("alpha")), name="same"))

    b = Builder()
    x = b.input("x", F32, (2, 3))
    first = b.op("LeakyRelu", x, name="v", alpha=1.0)
    second = b.op("LeakyRelu", first, name="w", alpha=2.0)
    third = b.op("LeakyRelu", second, name="y", alpha=2.0)
    model = b.model([(third, F32, (2, 3))])
    model.graph.register_initializer(
        ir.Value(name="v/LeakyRelu/same", const_value=ir.tensor(np.float32(9)))
    )
    lower(model, toys.target("LeakyRelu | any | illegal"), rules=rules)
    names = set(model.graph.initializers)
    assert names == {"v/LeakyRelu/same_1", "w/LeakyRelu/same"}  # equal ones are shared
    x0 = toys.numbers(2, 3)
    assert np.allclose(ort.run(model, {"x": x0})["y"], x0 + 5)


def test_law_5_an_initializer_that_a_caller_can_override_is_no_constant() -> None:
    rules = Registry()

    @lowers("Add", emits=("Identity",), into=rules)
    def folded(op: Tape, site: Site) -> ir.Value:
        site.constant(site.input("B"), "B")
        return op.Identity(site.input("A"))

    b = Builder()
    x = b.input("x", F32, (2, 3))
    bias = b.const("bias", np.zeros((3,), np.float32))
    b.inputs.append(bias)
    model = b.model([(b.op("Add", x, bias, name="y"), F32, (2, 3))])
    with pytest.raises(Stuck, match="B is not a constant"):
        lower(model, toys.target("Add | any | illegal"), rules=rules)


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


def _with_branches(op: str) -> ir.Model:
    b = Builder()
    x, condition = b.input("x", F32, (2, 3)), b.input("c", ir.DataType.BOOL, ())
    branches = {}
    for name in ("then_branch", "else_branch"):
        node = ir.Node("", op if name == "then_branch" else "Abs", [x], name=f"{name}/node")
        output = node.outputs[0]
        output.name, output.type, output.shape = f"{name}/y", ir.TensorType(F32), ir.Shape((2, 3))
        branches[name] = ir.Graph([], [output], nodes=[node], name=name)
    y = b.op("If", condition, name="y", **branches)
    return b.model([(y, F32, (2, 3))])


def test_law_10_subgraphs_are_rewritten_too() -> None:
    model = _with_branches("Relu")
    report = lower(model, toys.target("Relu | any | illegal"), rules=relu_as_max())
    assert report.ops_after["Max"] == 1
    assert report.ops_after["Relu"] == 0
    x = toys.numbers(2, 3)
    y = ort.run(model, {"x": x, "c": np.array(True)})["y"]
    assert np.array_equal(y, np.maximum(x, 0))


def test_law_10_functions_of_the_model_are_rewritten_too() -> None:
    x = ir.Value(name="fx")
    node = ir.Node("", "Relu", [x], name="in_function")
    node.outputs[0].name = "fy"
    body = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 22}, name="body")
    function = ir.Function("local", "F", graph=body, attributes=[])
    b = Builder()
    value = b.input("x", F32, (2, 3))
    model = b.model([(b.op("local::F", value, name="y"), F32, (2, 3))])
    model.functions[function.identifier()] = function
    model.opset_imports["local"] = 1
    report = plan(model, toys.target("Relu | any | illegal"), rules=relu_as_max())
    assert report.sites() or report.stuck, "a node in a function was passed over in silence"


def test_law_10_the_graph_stays_sorted() -> None:
    model = decoder(Decoder(weights="int4_qdq"))
    lower(model, toys.target("DequantizeLinear | any | illegal"))
    assert not list(faults(model))


def test_law_11_names_docs_and_metadata_go_to_the_new_nodes() -> None:
    """D43."""
    model = toys.chain(["Relu"])
    node = model.graph[0]
    node.doc_string, node.metadata_props["layer"] = "the activation", "7"
    node.meta["note"] = "mine"
    node.outputs[0].doc_string = "the result"
    model.metadata_props["who"] = "me"
    lower(model, toys.target("Relu | any | illegal"), rules=relu_as_max())
    new = model.graph[0]
    assert new.name == "y/Relu/Max"
    assert new.doc_string == "the activation"
    assert new.metadata_props == {"layer": "7", RULE: "max_zero", SOURCE: "y/Relu"}
    assert new.meta["note"] == "mine"
    assert new.outputs[0].doc_string == "the result"
    assert model.metadata_props["who"] == "me"


def test_law_12_an_exception_names_rule_node_form_and_attributes() -> None:
    rules = Registry()

    @lowers("LeakyRelu", emits=(), into=rules)
    def broken(op: Tape, site: Site) -> ir.Value:
        raise KeyError("num_heads")

    b = Builder()
    x = b.input("x", F32, (2, 3))
    model = b.model([(b.op("LeakyRelu", x, name="y", alpha=0.5), F32, (2, 3))])
    with pytest.raises(RuleError) as caught:
        lower(model, toys.target("LeakyRelu | rank 2 | illegal"), rules=rules)
    text = str(caught.value)
    for part in ("broken", "test_laws.py", "y/LeakyRelu", "[rank 2]", "alpha", "num_heads"):
        assert part in text


def test_law_13_all_or_nothing_unless_asked() -> None:
    rows = toys.target("Relu | any | illegal", "Sigmoid | any | illegal")
    model = toys.chain(["Relu", "Sigmoid"])
    before = ir.to_proto(model)
    with pytest.raises(Stuck, match="no rule lowers it"):
        lower(model, rows, rules=relu_as_max())
    assert ir.to_proto(model) == before
    report = lower(model, rows, rules=relu_as_max(), allow_stuck=True)
    assert [n.op_type for n in model.graph] == ["Max", "Sigmoid"]
    assert [node.op for node in report.stuck] == ["Sigmoid"]


def test_law_13_its_own_output_is_left_alone_and_runs_are_identical() -> None:
    rows = toys.target(
        "com.microsoft::SkipSimplifiedLayerNormalization | any | illegal",
        "SimplifiedLayerNormalization | any | illegal",
    )
    texts = []
    for _ in range(2):
        model = decoder()
        assert lower(model, rows).changed
        texts.append(ir.to_proto(model).SerializeToString(deterministic=True))
    assert texts[0] == texts[1]
    again = ir.from_proto(ir.to_proto(model))
    assert not lower(again, rows).changed
    assert [n.name for n in again.graph] == [n.name for n in model.graph]


def test_law_13_a_fusion_needs_an_illegal_pattern_or_a_legal_result() -> None:
    model = decoder(Decoder(weights="int4_qdq"))
    unwanted = toys.target("DequantizeLinear | any | legal", "MatMul | any | legal")
    assert not plan(model, unwanted).changed
    illegal = toys.target("DequantizeLinear | block_size>=1 | illegal")
    assert plan(model, illegal).sites()["matmul_nbits", "MatMul"] == 11
    raised = toys.target("DequantizeLinear | any | legal",
                         "com.microsoft::MatMulNBits | any | legal")  # fmt: skip
    assert plan(model, raised).sites()["matmul_nbits", "MatMul"] == 11


def test_law_14_a_rule_must_return_values_for_its_outputs() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Cast",), into=rules)
    def half(op: Tape, site: Site) -> ir.Value:
        return op.Cast(site.input("X"), to=ir.DataType.FLOAT16)

    with pytest.raises((BadBuild, RuleError), match="FLOAT16"):
        lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)


def test_law_14_rules_are_plain_frozen_values() -> None:
    rule = relu_as_max().lowering("Relu")[0]
    with pytest.raises((AttributeError, TypeError)):
        rule.state = 1  # type: ignore[attr-defined]


def test_law_15_weights_stay_packed_and_lazy() -> None:
    """D27: no Q/DQ is folded, and nothing is read until the model is saved."""
    model = decoder(Decoder(weights="int4_qdq"))
    before = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    lower(model, toys.target("DequantizeLinear | any | illegal"), keep_sites=False)
    tensors = [v.const_value for v in model.graph.initializers.values() if v.const_value]
    assert sum(t.nbytes for t in tensors) <= before
    codes = [t for t in tensors if t.name and t.name.endswith("/codes")]
    assert len(codes) == 11
    assert all(isinstance(t, ir.LazyTensor) for t in codes)


def test_a_fusion_is_declared_like_a_rule() -> None:
    rules = Registry()

    @fuses("Relu", pattern=lambda op, x: op.Relu(op.Neg(x)), emits=("Max",), into=rules)
    def negative_part(op: Tape, site: Site) -> ir.Value:
        """Relu(Neg(x)) = Max(-x, 0)."""
        return site.refuse("only declared here")

    assert [rule.name for rule in rules.fusing("Relu")] == ["negative_part"]
    assert rules.fusing("Relu")[0].about == "Relu(Neg(x)) = Max(-x, 0)."


def test_a_report_that_says_worse_does_not_save_an_illegal_node() -> None:
    rows = toys.target("Relu | any | illegal", "Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=relu_as_max())
    assert report.sites() == {("max_zero", "Relu"): 1}


def test_a_report_alone_decides_where_nothing_was_measured() -> None:
    rows = toys.target("Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=relu_as_max())
    assert report.sites() == {("max_zero", "Relu"): 1}


def test_a_doubt_is_only_said_where_the_rule_is_not_free() -> None:
    rows = toys.target("Relu | any | legal", "Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=relu_as_max())
    assert not report.changed
    (note,) = report.notes
    assert "doubt: Relu [rank 2] x 1" in note
    assert "reported:somebody" in note


def test_memory_that_runs_out_in_a_rule_is_no_fault_of_the_rule() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Max",), into=rules)
    def build(op: Tape, site: Site) -> ir.Value:
        op.Max(site.input("X"), site.input("X"))
        raise MemoryError

    model = toys.chain(["Relu"])
    with pytest.raises(MemoryError):
        lower(model, toys.target("Relu | any | illegal"), rules=rules)
    assert [node.op_type for node in model.graph] == ["Relu"]
    assert len(model.graph.inputs[0].uses()) == 1
