"""Moving models between versions of ai.onnx: up for what a rule needs, down to a ceiling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.facts import facts_of
from rewriter.lowering import Stuck, lower, plan
from rewriter.opsets import NotRaisable, differs, ir_version_of, raised
from tests import ort, toys
from tests.graphs import Builder

F32, F16, I64, U4 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.UINT4


def node(
    op: str,
    *,
    inputs: Mapping[str, ir.DataType] | None = None,
    outputs: int = 1,
    dtype: ir.DataType = F32,
    **attributes: Any,
) -> ir.Node:
    """A node with typed inputs and outputs."""
    given = [ir.Value(name=n, type=ir.TensorType(t)) for n, t in (inputs or {"x": F32}).items()]
    made = ir.Node("", op, given, ir.convenience.convert_attributes(attributes),
                   num_outputs=outputs)  # fmt: skip
    for i, value in enumerate(made.outputs):
        value.name, value.type = f"y{i}", ir.TensorType(dtype)
    return made


TWO = {"a": F32, "b": F32}
SPLIT = {"x": F32, "split": I64}
REDUCED = {"x": F32, "axes": I64}
SCATTER = {"data": F32, "indices": I64, "updates": F32}
DIFFERS = [
    ("the same version", node("Erf"), 13, 28, False),
    ("only types more", node("Reshape", inputs=SPLIT), 24, 14, False),
    ("a type that came later", node("Transpose", inputs={"x": U4}, dtype=U4), 24, 20, True),
    ("a type that was there", node("Transpose", inputs={"x": U4}, dtype=U4), 24, 21, False),
    ("an output type that came later", node("Cast", dtype=U4, to=int(U4)), 21, 20, True),
    ("an attribute at its default", node("Cast", to=1), 24, 13, False),
    ("written out", node("Cast", to=1, saturate=1, round_mode="up"), 24, 13, False),
    ("an attribute that is used", node("Cast", to=1, saturate=0), 24, 13, True),
    ("an attribute without default", node("Shape", dtype=I64, end=1), 23, 13, True),
    ("not there yet", node("Attention", inputs={"Q": F32, "K": F32, "V": F32}), 23, 22, True),
    ("axes that are not constant", node("ReduceMean", inputs=REDUCED), 18, 13, True),
    ("an input that may be left out", node("OptionalHasElement", dtype=ir.DataType.BOOL), 18, 15,
     False),
    ("windows that are open",
     node("Attention", inputs={"Q": F32, "K": F32, "V": F32}, left_window_size=-1), 25, 24, False),
    ("a window", node("Attention", inputs={"Q": F32, "K": F32, "V": F32}, left_window_size=2),
     25, 24, True),
    ("a mask that may be short",
     node("Attention", inputs={"Q": F32, "K": F32, "V": F32, "attn_mask": F32}), 24, 23, True),
    ("another default", node("Softmax"), 11, 13, True),
    ("another meaning", node("GroupNormalization", num_groups=2), 21, 18, True),
    ("another meaning of floats", node("Mod", inputs=TWO), 28, 13, True),
    ("the old meaning", node("Mod", inputs=TWO, fmod=1), 28, 13, False),
    ("the old meaning of integers", node("Mod", inputs={"a": I64, "b": I64}, dtype=I64), 28, 13,
     False),
    ("a value that came later", node("Pad", inputs=SPLIT, mode="wrap"), 19, 18, True),
    ("a value that was there", node("Pad", inputs=SPLIT, mode="edge"), 19, 18, False),
    ("a reduction that came later", node("ScatterElements", inputs=SCATTER, reduction="max"),
     18, 16, True),
    ("a reduction that was there", node("ScatterElements", inputs=SCATTER, reduction="add"),
     18, 16, False),
    ("sizes that are given", node("Split", inputs=SPLIT, outputs=2), 18, 13, False),
    ("sizes that are not given", node("Split", outputs=2), 13, 18, True),
    ("ONNX Runtime's own", node("SimplifiedLayerNormalization", inputs=TWO), 17, 24, False),
]  # fmt: skip


@pytest.mark.parametrize(("what", "of", "own", "other", "expected"), DIFFERS)
def test_whether_a_node_means_something_else(
    what: str, of: ir.Node, own: int, other: int, expected: bool
) -> None:
    assert differs(facts_of(of, {"": own}), other) is expected, what


def test_every_new_meaning_is_of_an_op_that_has_that_version() -> None:
    from rewriter.opsets import _CHANGED

    for op, since, _ in _CHANGED:
        assert onnx.defs.get_schema(op, since, "").since_version == since


def test_raised_names_the_node_that_forbids_it() -> None:
    units = [("n", facts_of(node("Cast", to=1), {"": 13}))]
    assert raised(units, 13, 24) == 24
    assert raised(units, 24, 13) == 24
    units.append(("s", facts_of(node("Split", outputs=2), {"": 13})))
    with pytest.raises(NotRaisable, match="needs opset 24, but Split 's' means something else"):
        raised(units, 13, 24)


@pytest.mark.parametrize(("opset", "version"), [(13, 7), (17, 8), (21, 10), (22, 10), (24, 12)])
def test_the_file_format_of_an_opset(opset: int, version: int) -> None:
    assert ir_version_of(opset) == version


# -- a ceiling ----------------------------------------------------------------------------------


def norm(opset: int, **cast: Any) -> ir.Model:
    """RMSNormalization, a Cast there and back, and a Reshape."""
    b = Builder()
    x = b.input("x", F32, (2, 3, 8))
    weight = b.const("weight", b.rng.standard_normal(8).astype(np.float32))
    y = b.op("RMSNormalization", x, weight, name="n", axis=-1)
    half = b.op("Cast", y, name="half", to=int(F16), **cast)
    wide = b.op("Cast", half, name="wide", to=int(F32), **cast)
    shape = b.const("shape", np.array([6, 8]))
    out = b.op("Reshape", wide, shape, name="out", allowzero=0)
    model = b.model([(out, F32, (6, 8))], opset)
    model.ir_version = 12
    return model


FEEDS = {"x": toys.numbers(2, 3, 8)}


@pytest.mark.parametrize("cast", [{}, {"saturate": 1, "round_mode": "up"}], ids=["plain", "spelt"])
@pytest.mark.parametrize(("ceiling", "version"), [(22, 10), (20, 9), (18, 8), (17, 8), (13, 7)])
def test_the_opset_comes_down(ceiling: int, version: int, cast: dict[str, Any]) -> None:
    model = norm(24, **cast)
    expected = ort.run(model, FEEDS)["out"]
    report = lower(model, target("onnx-standard", str(ceiling)))
    assert (model.opset_imports, model.ir_version) == ({"": ceiling}, version)
    assert f"the opset was lowered from 24 to {ceiling}" in report.notes
    assert {n.op_type for n in model.graph} & {"RMSNormalization"} == set()
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert ort.worst(expected, ort.run(model, FEEDS)["out"]) < 1e-3
    assert "round_mode" not in {name for n in model.graph for name in n.attributes}


def test_a_plan_says_the_same_and_changes_nothing() -> None:
    model = norm(24)
    report = plan(model, target("onnx-standard", "22"))
    assert "the opset was lowered from 24 to 22" in report.notes
    assert [f.op for f in report.fired] == ["RMSNormalization"]
    assert (model.opset_imports[""], model.ir_version) == (24, 12)


@pytest.mark.parametrize("ceiling", ["", "24", "28"])
def test_what_is_at_or_below_the_ceiling_stays(ceiling: str) -> None:
    model = norm(24)
    report = lower(model, target("onnx-standard", ceiling or None))
    assert (model.opset_imports[""], model.ir_version) == (24, 12)
    assert (report.changed, report.notes) == (False, [])


def test_running_on_the_result_changes_nothing() -> None:
    model = norm(24)
    lower(model, target("onnx-standard", "22"))
    again = lower(model, target("onnx-standard", "22"))
    assert (again.changed, again.notes) == (False, [])


def test_what_is_newer_is_stuck_with_a_reason_and_the_model_untouched() -> None:
    model = toys.chain(["Relu", "Swish"], opset=24)
    with pytest.raises(Stuck, match=r"Swish .*\[newer\]: came after the opset asked for"):
        lower(model, target("onnx-standard", "22"), disable=["swish_primitives"])
    assert [n.op_type for n in model.graph] == ["Relu", "Swish"]
    assert (model.opset_imports[""], model.ir_version) == (24, 10)


def test_the_opset_stays_where_stuck_nodes_may() -> None:
    model = toys.chain(["Relu", "Swish"], opset=24)
    on = target("onnx-standard", "17")
    report = lower(model, on, disable=["swish_primitives"], allow_stuck=True)
    assert [s.op for s in report.stuck] == ["Swish"]
    assert (model.opset_imports[""], model.ir_version) == (24, 10)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceL2"])
@pytest.mark.parametrize("axes", [[-1], [1, 2], None], ids=str)
def test_constant_axes_become_an_attribute(op: str, axes: list[int] | None) -> None:
    b = Builder()
    x = b.input("x", F32, (2, 3, 8))
    given = [] if axes is None else [b.const("axes", np.array(axes))]
    y = b.op(op, x, *given, name="y", keepdims=1)
    dims = [1 if axes is None or i in {a % 3 for a in axes} else d for i, d in enumerate((2, 3, 8))]
    model = b.model([(y, F32, dims)], 18)
    expected = ort.run(model, FEEDS)["y"]
    lower(model, target("onnx-standard", "13"))
    assert (model.opset_imports, list(model.graph.initializers)) == ({"": 13}, [])
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    np.testing.assert_array_equal(ort.run(model, FEEDS)["y"], expected)


@pytest.mark.parametrize("const", [False, True])
def test_axes_that_are_not_known_or_mean_nothing_stay_an_input(const: bool) -> None:
    b = Builder()
    x = b.input("x", F32, (2, 3, 8))
    axes = b.const("axes", np.array([2])) if const else b.input("axes", I64, (1,))
    y = b.op("ReduceMean", x, axes, name="y", noop_with_empty_axes=int(const))
    model = b.model([(y, F32, (2, 3, 1))], 18)
    with pytest.raises(Stuck, match=r"ReduceMean .*\[newer\]"):
        lower(model, target("onnx-standard", "13"))


def test_a_rule_may_pass_through_a_higher_opset() -> None:
    """BiasGelu becomes Gelu of opset 20, which becomes what opset 17 has."""
    b = Builder()
    x = b.input("x", F32, (2, 8))
    bias = b.const("bias", b.rng.standard_normal(8).astype(np.float32))
    y = b.op("com.microsoft::BiasGelu", x, bias, name="y")
    model = b.model([(y, F32, (2, 8))], 17)
    feeds = {"x": toys.numbers(2, 8)}
    expected = ort.run(model, feeds)["y"]
    report = lower(model, target("onnx-standard", "17"))
    assert (model.opset_imports, model.ir_version) == ({"": 17}, 10)
    assert not [note for note in report.notes if "lowered" in note]
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 2e-6


def test_subgraphs_come_down_too() -> None:
    b = Builder()
    x, use = b.input("x", F32, (2, 8)), b.input("use", ir.DataType.BOOL, ())
    inner = Builder()
    half = inner.op("Cast", x, name="half", to=int(F16), round_mode="up")
    wide = inner.op("Swish", inner.op("Cast", half, name="wide", to=int(F32)), name="then")
    for value, dtype in ((half, F16), (wide, F32)):
        value.type, value.shape = ir.TensorType(dtype), ir.Shape((2, 8))
    then = ir.Graph([], [wide], nodes=inner.nodes, name="then")
    other = Builder()
    same = other.op("Identity", x, name="else")
    same.type, same.shape = ir.TensorType(F32), ir.Shape((2, 8))
    otherwise = ir.Graph([], [same], nodes=other.nodes, name="else")
    y = b.op("If", use, name="y", then_branch=then, else_branch=otherwise)
    model = b.model([(y, F32, (2, 8))], 24)
    feeds = {"x": toys.numbers(2, 8), "use": np.array(True)}
    expected = ort.run(model, feeds)["y"]
    lower(model, target("onnx-standard", "22"))
    assert model.opset_imports == {"": 22}
    assert not [n for g in model.graphs() for n in g if n.op_type == "Swish"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 1e-3


def test_the_command_line_says_it_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, report = tmp_path / "m.onnx", tmp_path / "r.json"
    ir.save(norm(24), path)
    ep = ["--ep", "onnx-standard@22"]
    assert main(["plan", str(path), *ep]) == 0
    assert "the opset was lowered from 24 to 22" in capsys.readouterr().out
    assert main([str(path), *ep, "-o", str(tmp_path / "out"), "--report", str(report)]) == 0
    written = ir.load(tmp_path / "out" / "model.onnx")
    assert (written.opset_imports, written.ir_version) == ({"": 22}, 10)
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["target"]["version"] == "22"
    capsys.readouterr()
    assert main(["explain", "RMSNormalization", *ep]) == 0
    assert "RMSNormalization (illegal)" in capsys.readouterr().out
    assert main(["explain", f"{path}:n/RMSNormalization", *ep]) == 0
    assert "came after the opset asked for" in capsys.readouterr().out
