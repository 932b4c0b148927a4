"""Mask values that stay, each with the reason that is reported; and graphs inside graphs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.passes.mask_value import MaskValue
from rewriter.shapes import infer_model
from tests import ort
from tests.rewriter.passes.test_mask_value import (
    BOOL,
    CAUSAL,
    F32,
    LOWEST,
    Heads,
    S,
    T,
)

INF = np.inf


def _hidden(b: Heads, c: float = LOWEST) -> ir.Value:
    return b.op("Where", b.seen, b.number("zero", 0.0), b.number("c", c), name="mask")


def _rows(b: Heads, c: float, *, empty: bool) -> ir.Value:
    shown = CAUSAL.copy()
    shown[2] = not empty
    return b.added(b.const("c", np.where(shown, 0, c).astype(np.float32)))


def _output(b: Heads) -> ir.Model:
    mask = _hidden(b)
    return b.finish(b.added(mask), mask)


def _quantized(b: Heads) -> ir.Model:
    scale, zero = b.number("step", 400.0), b.const("point", np.array(255, np.uint8))
    codes = b.op("QuantizeLinear", b.added(_hidden(b, -1e5)), scale, zero, name="codes")
    return b.finish(b.op("DequantizeLinear", codes, scale, zero, name="back"))


def _multiplied(b: Heads) -> ir.Model:
    soft = b.input("soft", F32, (2, 1, 1, T))
    return b.finish(b.added(b.op("Mul", soft, b.number("c", LOWEST), name="mask")))


def _compared(b: Heads) -> ir.Model:
    masked = b.added(_hidden(b))
    far = b.op("Greater", masked, b.number("far", -1e30), name="far_from")
    return b.finish(masked, far)


def _compared_near(b: Heads) -> ir.Model:
    """-255 is above what the lowest float is below."""
    mask = _hidden(b)
    near = b.op("Less", mask, b.number("near", -1e3), name="below")
    return b.finish(b.added(mask), near)


def _asked_after_a_sum(b: Heads) -> ir.Model:
    """The lowest float and 1 make the lowest float; -255 and 1 do not make -255."""
    mask = b.op("Add", _hidden(b), b.not_padded(), name="sum")
    at = b.op("Equal", mask, b.number("min", LOWEST), name="at")
    return b.finish(b.added(mask), at)


def _whole_rows(b: Heads) -> ir.Model:
    queries = b.input("queries", BOOL, (1, 1, S, 1))
    mask = b.op("Where", queries, b.number("zero", 0.0), b.number("c", LOWEST), name="mask")
    return b.finish(b.added(mask))


def _no_scores(b: Heads) -> ir.Model:
    wide = b.op("Expand", _hidden(b), b.ints("all", 2, 2, S, T), name="wide")
    return b.finish(wide)


def _across(b: Heads) -> ir.Model:
    weights = b.op("Softmax", b.added(_hidden(b)), name="weights", axis=2)
    model = b.model([(weights, F32, (2, 2, S, T))], 21)
    infer_model(model)
    return model


def _many(b: Heads) -> ir.Model:
    ramp = np.where(CAUSAL, 0, -1e5 * (1 + np.arange(T))).astype(np.float32)
    return b.finish(b.added(b.const("c", ramp)))


def _torn(b: Heads) -> ir.Model:
    """One number of the mask stays, as it is an output too, and all are asked for together."""
    other = b.op("Where", b.seen, b.number("zero", 0.0), b.number("c", LOWEST), name="mask")
    kept = b.op("Expand", b.number("kept", LOWEST), b.ints("all", 1, 1, S, T), name="wide")
    pads = b.op("Cast", b.not_padded(), name="pads", to=BOOL)
    both = b.op("Where", pads, kept, other, name="both")
    at = b.op("Equal", both, b.number("min", LOWEST), name="at")
    return b.finish(b.added(both), kept, at)


def _mixed(b: Heads) -> ir.Value:
    mask = b.op("Where", b.seen, b.number("d", -1e4), b.number("c", -INF), name="mask")
    return b.added(mask)


def _twice(b: Heads) -> ir.Value:
    """A constant that hides no row with a mask that may, on top of it."""
    first = _rows(b, -INF, empty=False)
    again = b.op("Where", b.seen, b.number("zero", 0.0), b.number("d", -INF), name="again")
    return b.op("Add", first, again, name="both")


def _guard_seen(b: Heads) -> ir.Model:
    model = b.finish(b.added(_hidden(b, -INF)), guard=True)
    model.graph.outputs.append(next(v for n in b.nodes for v in n.outputs if v.name == "nan"))
    return model


REFUSED: dict[str, tuple[Callable[[Heads], ir.Model], float, str]] = {
    "output": (_output, -255, "'mask' is an output"),
    "quantized": (_quantized, -255, "it goes to QuantizeLinear 'codes/QuantizeLinear'"),
    "soft mask": (_multiplied, -255, "Mul 'mask/Mul' multiplies it with what may be neither"),
    "multiplied": (
        lambda b: b.finish(b.added(b.op("Mul", b.not_padded(), b.number("c", -INF), name="mask"))),
        -255, "Mul 'mask/Mul' multiplies it, and -inf times 0 is NaN",
    ),
    "compared": (_compared, -255, "it goes to Greater 'far_from/Greater'"),
    "compared near": (_compared_near, -255, "it goes to Less 'below/Less'"),
    "asked after a sum": (_asked_after_a_sum, -255, "it goes to Equal 'at/Equal'"),
    "whole rows": (_whole_rows, -255, "Add 'masked/Add' hides a row whole"),
    "no scores": (_no_scores, -255, "no scores are mixed with it"),
    "across": (_across, -255, "Softmax 'weights/Softmax' is not along the last axis"),
    "ramp": (_many, -255, "3 numbers from -600000 to -400000 are no mask"),
    "torn": (_torn, -255, "Equal 'at/Equal' asks for it in a mask that keeps it|is an output"),
    "a row of the lowest": (
        lambda b: b.finish(_rows(b, LOWEST, empty=True)), -255, "hides a row whole, and its weights"
    ),
    "guarded, two masks": (
        lambda b: b.finish(_twice(b), guard=True), -255, "may hide a row whole, which gives 0 by"
    ),
    "guarded, and an output": (
        _guard_seen, -255, "Add 'masked/Add' may hide a row whole, which gives 0 by -inf"
    ),
    "guarded, and a row": (
        lambda b: b.finish(_rows(b, -INF, empty=True), guard=True), -255, "hides a row whole"
    ),
    "above": (lambda b: b.finish(b.added(_hidden(b, -1e4))), -2e4, "above the new one already"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason_and_left_as_it_is(case: str) -> None:
    build, value, why = REFUSED[case]
    model = build(Heads())
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    run = MaskValue(value)
    assert not run(model).modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert run.changes == []
    assert run.kept
    for pattern in why.split("|"):
        assert any(re.search(pattern, kept.why) for kept in run.kept)
    assert all(re.search(why, kept.why) for kept in run.kept)


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.finish(_capped_scores(b)),
        lambda b: b.finish(b.added(b.const("c", np.full((S, T), -9e3, np.float32)))),
        lambda b: b.finish(b.op("Min", b.scores, b.number("c", 1e9), name="masked")),
    ],
    ids=["none", "too small", "positive"],
)
def test_what_is_no_mask_is_not_spoken_of(build: Callable[[Heads], ir.Model]) -> None:
    run = MaskValue(-255.0)
    assert not run(build(Heads())).modified
    assert run.kept == []


def _capped_scores(b: Heads) -> ir.Value:
    return b.op("Tanh", b.scores, name="masked")


@pytest.mark.parametrize("old", [LOWEST, -INF])
def test_guarded_rows_that_a_constant_shows(old: float) -> None:
    """The guard against NaN has nothing to do where every row sees a key."""
    b = Heads()
    model = b.finish(_rows(b, old, empty=False), guard=True)
    before = ort.run(model, b.feeds())
    run = MaskValue(-255.0)
    assert run(model).modified
    assert run.notes == []
    assert ort.worst(before["guarded"], ort.run(model, b.feeds())["guarded"]) < 1e-7


def test_of_two_numbers_in_a_guarded_mask_one_stays() -> None:
    """A row that both hide whole is one of the keys that the larger hides, and none is 0."""
    b = Heads()
    model = b.finish(_mixed(b), guard=True)
    before = ort.run(model, b.feeds())
    run = MaskValue(-255.0)
    assert run(model).modified
    assert [change.value for change in run.changes] == ["d"]
    assert [kept.value for kept in run.kept] == ["c"]
    assert ort.worst(before["guarded"], ort.run(model, b.feeds())["guarded"]) < 2e-3


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("value", [-1e4, -255.0, -50.0])
def test_a_guard_asks_the_mask(value: float, opset: int) -> None:
    """Rows of -inf gave 0 behind torch's guard, and do so still, though nothing is NaN."""
    b = Heads()
    model = b.finish(b.added(_hidden(b, -INF)), guard=True)
    model.graph.opset_imports[""] = opset
    feeds = b.feeds()
    feeds["seen"] = CAUSAL[None, None].copy()
    feeds["seen"][..., 1, :] = False
    before = ort.run(model, feeds)
    run = MaskValue(value)
    assert run(model).modified
    assert run.kept == []
    assert len(run.notes) == (value > -104)  # e^-104 is 0 in float32
    assert not any(node.op_type == "IsNaN" for node in model.graph)
    after = ort.run(model, feeds)
    assert after["guarded"][:, :, 1].max() == 0
    assert after["guarded"][:, :, 0].max() > 0.1
    for name in ("guarded", "y"):
        assert ort.worst(before[name], after[name]) < 1e-6
    assert not MaskValue(value)(model).modified


def test_a_row_hidden_by_a_number_that_swallows_nothing_keeps_its_weights() -> None:
    b = Heads()
    model = b.finish(_rows(b, -1e4, empty=True))
    before = ort.run(model, b.feeds())
    assert MaskValue(-255.0)(model).modified
    after = ort.run(model, b.feeds())
    assert ort.worst(before["weights"], after["weights"]) < 2e-3  # -1e4 has steps of 1e-3


def test_an_input_with_a_default_is_no_constant() -> None:
    b = Heads()
    c = b.number("c", LOWEST)
    mask = b.op("Where", b.seen, b.number("zero", 0.0), c, name="mask")
    b.inputs.append(c)
    assert not MaskValue(-255.0)(b.finish(b.added(mask))).modified


def test_branches_and_functions() -> None:
    """A constant outside a branch that uses it, and one inside of a function."""
    b = Heads()
    c = b.number("c", LOWEST)
    inner = Heads()
    inner.scores, inner.seen = b.scores, b.seen
    mask = inner.op("Where", b.seen, inner.number("zero", 0.0), c, name="inner_mask")
    masked = inner.op("Softmax", inner.added(mask), name="inner_weights")
    masked.type, masked.shape = ir.TensorType(F32), ir.Shape((2, 2, S, T))
    own = inner.nodes[-3:]
    graphs = [
        ir.Graph([], [masked], nodes=own, initializers=[inner.initializers[-1]], name="then"),
    ]
    plain = ir.Node("", "Softmax", [b.scores], name="plain", num_outputs=1)
    plain.outputs[0].name = "plain_weights"
    graphs.append(ir.Graph([], list(plain.outputs), nodes=[plain], name="else"))
    flag = b.input("flag", BOOL, ())
    chosen = b.op("If", flag, name="chosen", then_branch=graphs[0], else_branch=graphs[1])
    x = ir.Value(name="x", type=ir.TensorType(F32))
    low = ir.Node("", "Constant", [], [ir.AttrFloat32("value_float", LOWEST)], num_outputs=1)
    cond = ir.Value(name="cond", type=ir.TensorType(BOOL))
    low.outputs[0].name, low.outputs[0].type = "low", ir.TensorType(F32)
    where = ir.Node("", "Where", [cond, x, low.outputs[0]], name="hide", num_outputs=1)
    where.outputs[0].name = "hid"
    soft = ir.Node("", "Softmax", [where.outputs[0]], name="soft", num_outputs=1)
    soft.outputs[0].name = "p"
    body = ir.Graph([cond, x], [soft.outputs[0]], nodes=[low, where, soft], name="f",
                    opset_imports={"": 21})  # fmt: skip
    called = b.op("local::hide", b.seen, b.scores, name="called")
    model = b.model([(chosen, F32, (2, 2, S, T)), (called, F32, (2, 2, S, T))], 21)
    model.graph.opset_imports["local"] = 1
    function = ir.Function("local", "hide", graph=body, attributes=[])
    model.functions[function.identifier()] = function
    feeds = {**b.feeds(), "flag": np.array(True)}
    before = ort.run(model, feeds)
    run = MaskValue(-50.0)
    run(model)
    changed = {(change.value, change.new, change.sites) for change in run.changes}
    assert changed == {("c", -50.0, ("masked/Add",)), ("low", -50.0, ("hide",))}
    after = ort.run(model, feeds)
    for name in before:
        assert ort.worst(before[name], after[name]) < 1e-7
