"""Laws 1 to 3, 12 and 14 of the engine (README, "How it decides"): what a rule is and may do."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target
from rewriter.attempt import RuleError
from rewriter.commit import BadBuild
from rewriter.lowering import Stuck, lower, plan
from rewriter.rule import Registry, fuses, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from tests import toys
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


def test_law_1_two_rules_for_one_form_need_an_order() -> None:
    rules = toys.relu_as_max()

    def other(op: Tape, site: Site) -> ir.Value:
        return op.Identity(site.input("X"))

    with pytest.raises(ValueError, match=r"'max_zero' and 'other' both take Relu \[any\]"):
        lowers("Relu", emits=("Identity",), into=rules)(other)
    lowers("Relu", emits=("Identity",), into=rules, order=1)(other)
    assert [rule.name for rule in rules.lowering("Relu")] == ["max_zero", "other"]


def test_law_1_the_lower_order_is_tried_first() -> None:
    rules = toys.relu_as_max()

    @lowers("Relu", emits=("LeakyRelu",), into=rules, order=-1)
    def leaky(op: Tape, site: Site) -> ir.Value:
        return op.LeakyRelu(site.input("X"), alpha=0.0)

    report = lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)
    assert [fired.rule for fired in report.fired] == ["leaky"]


def test_law_1_a_direct_rule_stays_away_where_what_it_builds_is_not_legal() -> None:
    rules = toys.relu_as_max()

    @lowers("Relu", emits=("Neg", "Min"), into=rules, order=-1, direct=True)
    def negated(op: Tape, site: Site) -> ir.Value:
        x = site.input("X")
        return op.Neg(op.Min(op.Neg(x), op.const(np.float32(0))))

    def on(verdict: str) -> Target:
        known = ("Relu | any | illegal", "Neg | any | legal", f"Min | any | {verdict}")
        return toys.target(*known[: 2 if verdict == "unknown" else 3])

    for verdict in ("illegal", "wrong", "unknown"):
        report = lower(toys.chain(["Relu"]), on(verdict), rules=rules)
        assert [site.rule for site in report.fired] == ["max_zero"]
        with pytest.raises(Stuck, match=rf"it needs Min, which \[any\] is {verdict}"):
            lower(toys.chain(["Relu"]), on(verdict), rules=rules, disable=["max_zero"])
    report = lower(toys.chain(["Relu"]), on("legal"), rules=rules)
    assert [site.rule for site in report.fired] == ["negated"]


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
    place = ("broken", "test_laws_of_rules:", "y/LeakyRelu", "[rank 2]")
    for part in (*place, "alpha", "num_heads"):
        assert part in text


def test_law_14_a_rule_must_return_values_for_its_outputs() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Cast",), into=rules)
    def half(op: Tape, site: Site) -> ir.Value:
        return op.Cast(site.input("X"), to=ir.DataType.FLOAT16)

    with pytest.raises((BadBuild, RuleError), match="FLOAT16"):
        lower(toys.chain(["Relu"]), toys.target("Relu | any | illegal"), rules=rules)


def test_law_14_rules_are_plain_frozen_values() -> None:
    rule = toys.relu_as_max().lowering("Relu")[0]
    with pytest.raises((AttributeError, TypeError)):
        rule.state = 1  # type: ignore[attr-defined]  # what a rule must not have


def test_a_fusion_is_declared_like_a_rule() -> None:
    rules = Registry()

    @fuses("Relu", pattern=lambda op, x: op.Relu(op.Neg(x)), emits=("Max",), into=rules)
    def negative_part(op: Tape, site: Site) -> ir.Value:
        """Relu(Neg(x)) = Max(-x, 0)."""
        return site.refuse("only declared here")

    assert [rule.name for rule in rules.fusing("Relu")] == ["negative_part"]
    assert rules.fusing("Relu")[0].about == "Relu(Neg(x)) = Max(-x, 0)."
