"""Laws 4, 5, 10 and 11 of the engine: what of a graph stays as it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.commit import RULE, SOURCE
from rewriter.errors import RewriteError
from rewriter.lowering import Stuck, lower, plan
from rewriter.rule import Registry, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from rewriter.wellformed import faults
from tests import ort, toys
from tests.decoders import Decoder, decoder
from tests.graphs import Builder

F32 = ir.DataType.FLOAT


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
    def transposed(op: Tape, site: Site) -> ir.Value:
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


def test_law_10_subgraphs_are_rewritten_too() -> None:
    model = _with_branches("Relu")
    report = lower(model, toys.target("Relu | any | illegal"), rules=toys.relu_as_max())
    assert report.ops_after["Max"] == 1
    assert report.ops_after["Relu"] == 0
    x = toys.numbers(2, 3)
    y = ort.run(model, {"x": x, "c": np.array(True)})["y"]
    assert np.array_equal(y, np.maximum(x, 0))


def _calling(calls: int) -> ir.Model:
    """A model with a function around a Relu, and so many nodes that call it."""
    x = ir.Value(name="fx")
    node = ir.Node("", "Relu", [x], name="in_function")
    node.outputs[0].name = "fy"
    body = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 22}, name="body")
    function = ir.Function("local", "F", graph=body, attributes=[])
    b = Builder()
    value = b.input("x", F32, (2, 3))
    for i in range(calls):
        value = b.op("local::F", value, name=f"y{i}")
    model = b.model([(b.op("Abs", value, name="y"), F32, (2, 3))])
    model.functions[function.identifier()] = function
    model.opset_imports["local"] = 1
    return model


def test_law_10_functions_of_the_model_are_rewritten_too() -> None:
    report = plan(_calling(1), toys.target("Relu | any | illegal"), rules=toys.relu_as_max())
    assert report.sites() or report.stuck, "a node in a function was passed over in silence"


def test_a_function_that_nothing_calls_is_not_judged() -> None:
    """Nor one whose op the target has by itself: ONNX Runtime takes the kernel, not the body.

    mobius leaves the bodies of com.microsoft's norms in its models.
    """
    table = ("Relu | any | illegal", "Abs | any | legal", "local::F | any | legal")
    for calls in (0, 1):
        report = lower(_calling(calls), toys.target(*table), rules=toys.relu_as_max())
        assert not report.stuck
        assert not report.fired
    report = plan(_calling(2), toys.target(*table[:2]), rules=toys.relu_as_max())
    assert len(report.stuck) + len(report.fired) == 1, "a body is judged once"


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
    lower(model, toys.target("Relu | any | illegal"), rules=toys.relu_as_max())
    new = model.graph[0]
    assert new.name == "y/Relu/Max"
    assert new.doc_string == "the activation"
    assert new.metadata_props == {"layer": "7", RULE: "max_zero", SOURCE: "y/Relu"}
    assert new.meta["note"] == "mine"
    assert new.outputs[0].doc_string == "the result"
    assert model.metadata_props["who"] == "me"
