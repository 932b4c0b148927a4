"""Written-out attentions are raised to one op when, and only when, they are the same function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower, plan
from tests import htp, ort, toys
from tests.graphs import Builder
from tests.written_attention import DV, LOWEST, B, D, H, S, T, attention, given

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
STANDARD = target("onnx-standard")
NO_SOFTMAX = toys.target(
    "Softmax | any | illegal", *(f"{op} | any | legal" for op in ("Attention", "Expand", "Max"))
)


def same(model: ir.Model, *, hide: bool = False, tolerance: float = 2e-6) -> ir.Node:
    """Raise a model, compare with what it was, and return its Attention."""
    feeds = given(model, hide=hide)
    expected = ort.run(model, feeds)["y"].astype(np.float32)
    lower(model, STANDARD)
    assert ort.worst(expected, ort.run(model, feeds)["y"].astype(np.float32)) < tolerance
    assert not any(node.op_type == "Softmax" for node in model.graph)
    (found,) = (node for node in model.graph if node.op_type == "Attention")
    return found


@pytest.mark.parametrize("mask", ["", "add", "add first", "row", "select", "select unseen"])
@pytest.mark.parametrize("keys", ["transposed", "from rows", "folded", "given"])
@pytest.mark.parametrize("scale", ["score", "split", "divisor", ""])
def test_raised(scale: str, keys: str, mask: str) -> None:
    node = same(attention(scale=scale, keys=keys, mask=mask))
    assert node.attributes["scale"].as_float() == pytest.approx(0.3 if scale else 1)
    assert len([v for v in node.inputs if v is not None]) == (4 if mask else 3)


@pytest.mark.parametrize("hidden", [LOWEST, -3e38, -1e30, -1e9, -3e4, -1e4, -2e3])
def test_rows_that_see_nothing_stay_what_they_are(hidden: float) -> None:
    """Equal weights, or those of the scores; ONNX Runtime's Attention gives 0 for the lowest."""
    same(attention(mask="add", hidden=hidden), hide=True)


def test_rows_that_see_nothing_behind_a_guard_are_0() -> None:
    model = attention(mask="add", guard=True)
    feeds = given(model, hide=True)
    assert not ort.run(model, feeds)["y"][0, :, -1].any()
    same(model, hide=True)


@pytest.mark.parametrize("mask", ["select", "select unseen"])
@pytest.mark.parametrize(("hidden", "guard"), [(-np.inf, True), (LOWEST, False), (-1e25, False)])
def test_rows_that_see_nothing_where_scores_are_replaced(
    mask: str, hidden: float, guard: bool
) -> None:
    same(attention(mask=mask, hidden=hidden, guard=guard), hide=True)


@pytest.mark.parametrize("mask", ["add", "select"])
@pytest.mark.parametrize("hidden", [-np.inf, -65504.0])
def test_a_stored_mask_in_half_precision(hidden: float, mask: str) -> None:
    same(attention(mask=mask, hidden=hidden, stored=True, dtype=F16), tolerance=4e-3)


@pytest.mark.parametrize("mask", ["", "add"])
def test_softcap_comes_before_the_mask(mask: str) -> None:
    """D03: scores of some tens, so that the cap is felt."""
    node = same(attention(cap=2.0, mask=mask, factor=3.0), tolerance=5e-6)
    assert node.attributes["softcap"].as_float() == 2
    assert node.attributes["scale"].as_float() == pytest.approx(3)


def test_heads_that_are_repeated_go_in_as_they_were() -> None:
    node = same(attention(groups="repeat", mask="add"))
    assert [str(v.name) for v in node.inputs[:3] if v is not None] == ["q", "k", "v"]


def test_heads_that_are_tiled_stay_apart() -> None:
    """D04: with two key heads for four, the two orders differ."""
    node = same(attention(groups="tile"))
    assert [str(v.name) for v in node.inputs[1:3] if v is not None] == ["k/many", "v/many"]


def test_one_head_for_all() -> None:
    same(attention(kv_heads=1, mask="add"))


def test_a_softmax_in_float_of_halves() -> None:
    node = same(attention(dtype=F16, wide=1, mask="add"), tolerance=4e-3)
    assert node.attributes["softmax_precision"].as_int() == 1


def test_a_cast_that_changes_nothing_says_nothing() -> None:
    assert "softmax_precision" not in same(attention(wide=1)).attributes


def test_layers_share_the_mask() -> None:
    b = Builder()
    q = x = b.input("q", F32, (1, 2, 3, 3))
    seen = b.input("seen", ir.DataType.BOOL, (1, 1, 3, 3))
    low = b.const("low", np.float32(LOWEST))
    mask = b.op("Where", seen, b.const("none", np.float32(0)), low, name="mask")
    for i in range(2):
        scores = b.op(
            "MatMul", x, b.op("Transpose", q, name=f"t{i}", perm=[0, 1, 3, 2]), name=f"s{i}"
        )
        weights = b.op("Softmax", b.op("Add", scores, mask, name=f"m{i}"), name=f"p{i}")
        x = b.op("MatMul", weights, q, name=f"y{i}")
    model = b.model([(x, F32, (1, 2, 3, 3))], 23)
    lower(model, STANDARD)
    assert sorted(n.op_type for n in model.graph) == ["Attention", "Attention", "Max", "Where"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"axis": 2}, "the Softmax is not over the last axis"),
        ({"used": "scaled"}, "'scaled' is used elsewhere, too"),
        ({"used": "weights"}, "'weights' is used elsewhere, too"),
        ({"mask": "float"}, "what the mask holds where it hides a key is not known"),
        ({"mask": "add", "guard": True, "zero": 1.0}, "a NaN becomes 1 instead of 0"),
        (
            {"mask": "add", "guard": True, "hidden": -1e4, "dtype": F16},
            "rows are guarded against NaN, and hidden by a number",
        ),
        ({"mask": "select", "hidden": -1e4}, "a hidden score becomes -10000, which is no -inf"),
        ({"mask": "select", "hidden": -1e9}, "a hidden score becomes -1e+09, which is no -inf"),
        ({"mask": "select", "hidden": 0.0}, "a hidden score becomes 0, which is no -inf"),
        (
            {"mask": "select", "hidden": -1e4, "stored": True},
            "a hidden score becomes -10000, which is no -inf",
        ),
        (
            {"mask": "select", "hidden": -65504.0, "dtype": F16},
            "a hidden score becomes -65504, which is no -inf",
        ),
        (
            {"mask": "add", "hidden": -65504.0, "dtype": F16},
            "a row that is hidden by the lowest number gives 0 in ONNX Runtime",
        ),
        ({"factor": -0.3}, "scores scaled by -0.3 have no Attention"),
        ({"cap": -2.0}, "a softcap of -2 is not positive"),
        ({"wide": 11}, "the Softmax is computed in DOUBLE"),
        ({"dtype": ir.DataType.DOUBLE}, "an Attention of DOUBLE is not raised"),
        ({"opset": 12, "scale": "split"}, "needs opset 23"),
    ],
    ids=str,
)
def test_stays_where_a_condition_fails(changes: dict[str, Any], reason: str) -> None:
    report = plan(attention(**changes), NO_SOFTMAX)
    assert not report.changed
    (stuck,) = report.stuck
    assert any(reason in tried.reason for tried in stuck.tried), stuck.tried


@pytest.mark.parametrize(
    ("name", "shape", "changes", "reason"),
    [
        ("k", (1, H, T, D), {}, "batches ['1', '2'] differ"),
        ("q", (B, 1, S, D), {}, "do not fit together"),
        ("v", (B, 1, T, DV), {}, "do not fit together"),
        ("seen", (B, 1, S, 1), {"mask": "add"}, "the mask [2,1,3,1] does not fit scores [2,4,3,5]"),
        ("seen", (B, 1, S, 1), {"mask": "select"}, "[2,1,3,1] does not fit scores [2,4,3,5]"),
        (
            "q",
            (B, H, "tokens", D),
            {},
            "Q, K and V have to be of rank 4, all but their batch known",
        ),
    ],
    ids=str,
)
def test_stays_where_shapes_do_not_fit(
    name: str, shape: tuple[int | str, ...], changes: dict[str, Any], reason: str
) -> None:
    model = attention(**changes)
    next(v for v in model.graph.inputs if v.name == name).shape = ir.Shape(shape)
    for value in model.graph.outputs:
        value.shape = None
    report = plan(model, NO_SOFTMAX)
    assert not report.changed
    (stuck,) = report.stuck
    assert any(reason in tried.reason for tried in stuck.tried), stuck.tried


def test_heads_in_the_batch_stay_there() -> None:
    b = Builder()
    q = b.input("q", F32, (4, 3, 8))
    columns = b.op("Transpose", q, name="columns", perm=[0, 2, 1])
    p = b.op("Softmax", b.op("MatMul", q, columns, name="scores"), name="p", axis=-1)
    model = b.model([(b.op("MatMul", p, q, name="y"), F32, (4, 3, 8))], 23)
    report = plan(model, NO_SOFTMAX)
    assert "K has to be of rank 4" in {tried.reason for tried in report.stuck[0].tried}


def test_weights_that_are_rounded_on_the_way_stay_so() -> None:
    b = Builder()
    q = b.input("q", F32, (1, 2, 3, 8))
    columns = b.op("Transpose", q, name="columns", perm=[0, 1, 3, 2])
    p = b.op("Softmax", b.op("MatMul", q, columns, name="scores"), name="p", axis=-1)
    p = b.op("Cast", b.op("Cast", p, name="rounded", to=10), name="again", to=1)
    model = b.model([(b.op("MatMul", p, q, name="y"), F32, (1, 2, 3, 8))], 23)
    report = plan(model, NO_SOFTMAX)
    reasons = {tried.reason for tried in report.stuck[0].tried}
    assert "the weights are rounded to FLOAT16 between" in reasons


@pytest.mark.parametrize("changes", [{"scale": "run-time"}, {"dropout": True}], ids=str)
def test_what_has_another_node_in_between_is_no_attention(changes: dict[str, Any]) -> None:
    assert not plan(attention(**changes), STANDARD).changed


def test_stays_where_it_is_legal_and_attention_is_not() -> None:
    assert not plan(attention(mask="add"), target("qnn", "2.4.0")).changed


@pytest.mark.parametrize("hide", [False, True])
def test_one_lowering_serves_where_the_guard_is_wrong(hide: bool) -> None:
    """HTP's IsNaN is wrong: raised, and lowered as every other Attention is."""
    model = attention(scale="split", mask="add", guard=True, groups="repeat")
    feeds = given(model, hide=hide)
    expected = ort.run(model, feeds)["y"]
    lower(model, target("qnn", "2.4.0"))
    assert not {"Attention", "IsNaN"} & {node.op_type for node in model.graph}
    assert ort.worst(expected, ort.run(model, feeds)["y"]) < 2e-6


def test_what_was_written_out_for_one_target_stays_for_another() -> None:
    """Law 13: a second run would undo the first."""
    b = Builder()
    q = b.input("q", F32, (1, 2, 3, 4))
    model = b.model([(b.op("Attention", q, q, q, name="y"), F32, (1, 2, 3, 4))], 23)
    lower(model, target("qnn", "2.4.0"))
    assert "Softmax" in {node.op_type for node in model.graph}
    assert not lower(model, target("qnn", "2.7.0")).changed


@htp.needs_qnn
@pytest.mark.parametrize("hidden", [-np.inf, LOWEST])
@pytest.mark.parametrize("groups", ["", "repeat"])
@pytest.mark.parametrize("stored", [False, True], ids=["run-time", "stored"])
def test_placed_whole_on_htp(stored: bool, groups: str, hidden: float, tmp_path: Path) -> None:
    """Raised where the mask is known to show a key to every query: HTP has no 0 for the others."""
    model = attention(mask="add", groups=groups, hidden=hidden, stored=stored)
    feeds = given(model)
    expected = ort.run(model, feeds)
    lower(model, target("qnn", "2.7.0"))
    assert ("Attention" in {node.op_type for node in model.graph}) is stored
    htp.check(model, feeds, expected, tmp_path)
