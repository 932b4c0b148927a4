"""Mask values: found on their way to a softmax, replaced, copied or left with a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.passes.mask_value import MaskValue
from rewriter.shapes import infer_model
from tests import ort
from tests.graphs import Builder

F32, F16, I64, BOOL = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT64, ir.DataType.BOOL
LOWEST = float(np.finfo(np.float32).min)
S, T, D = 4, 6, 8
CAUSAL = np.arange(T)[None] <= np.arange(S)[:, None] + T - S
VALUES = [-1e4, -255.0, -50.0]
Array = npt.NDArray[np.float32]


class Heads(Builder):
    """Scores of 2 heads, 4 queries and 6 keys, and what is made of them."""

    def __init__(self, dtype: ir.DataType = F32) -> None:
        super().__init__()
        self.dtype = dtype
        self.padding = self.input("attention_mask", I64, (2, T))
        self.seen = self.input("seen", BOOL, (1, 1, S, T))
        q, k = (self.input(name, dtype, (2, 2, n, D)) for name, n in (("q", S), ("k", T)))
        self.value = self.input("v", dtype, (2, 2, T, D))
        keys = self.op("Transpose", k, name="keys", perm=[0, 1, 3, 2])
        scaled = self.op("MatMul", q, keys, name="products")
        self.scores = self.op("Mul", scaled, self.number("scale", D**-0.5), name="scores")

    def number(self, name: str, value: float) -> ir.Value:
        return self.const(name, np.array(value, self.dtype.numpy()))

    def ints(self, name: str, *values: int) -> ir.Value:
        return self.const(name, np.array(values, np.int64))

    def not_padded(self, name: str = "hole") -> ir.Value:
        """1 - attention_mask as a float (2, 1, 1, T)."""
        wide = self.op("Unsqueeze", self.padding, self.ints("axes", 1, 2), name="wide")
        given = self.op("Cast", wide, name="given", to=self.dtype)
        return self.op("Sub", self.number("one", 1.0), given, name=name)

    def added(self, mask: ir.Value) -> ir.Value:
        return self.op("Add", self.scores, mask, name="masked")

    def finish(self, masked: ir.Value, *more: ir.Value, guard: bool = False) -> ir.Model:
        """The model of the softmax's weights, what they mix, and other outputs."""
        weights = self.op("Softmax", masked, name="weights", axis=-1)
        if guard:
            nan = self.op("IsNaN", weights, name="nan")
            weights = self.op("Where", nan, self.number("none", 0.0), weights, name="guarded")
        y = self.op("MatMul", weights, self.value, name="y")
        model = self.model([(weights, self.dtype, (2, 2, S, T)), (y, self.dtype, (2, 2, S, D))], 21)
        model.graph.outputs.extend(more)
        infer_model(model)
        return model

    def feeds(self, *, padded: bool = True) -> ort.Arrays:
        rng = np.random.default_rng(3)
        shapes = {"q": (2, 2, S, D), "k": (2, 2, T, D), "v": (2, 2, T, D)}
        feeds = {n: rng.standard_normal(s).astype(self.dtype.numpy()) for n, s in shapes.items()}
        feeds["attention_mask"] = np.ones((2, T), np.int64)
        feeds["attention_mask"][1, 0] = 0 if padded else 1
        feeds["seen"] = CAUSAL[None, None]
        return feeds


def weights_of(feeds: ort.Arrays, seen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Softmax over the keys that are seen, by its formula; 0 for the others."""
    q, k = (feeds[name].astype(np.float64) for name in ("q", "k"))
    scores = np.where(seen, q @ k.swapaxes(2, 3) / D**0.5, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _stored(b: Heads, c: float) -> ir.Value:
    return b.const("c", np.where(CAUSAL, 0, c).astype(b.dtype.numpy())[None, None])


def _selected(b: Heads, c: float) -> ir.Value:
    return b.op("Where", b.seen, b.number("zero", 0.0), b.number("c", c), name="mask")


def _filled(b: Heads, c: float) -> ir.Value:
    """torch.full, then triu: TorchScript's way."""
    fill = ir.tensor(np.array([c], b.dtype.numpy()))
    full = b.op("ConstantOfShape", b.ints("shape", S, T), name="c", value=fill)
    return b.op("Trilu", full, b.const("diagonal", np.array(T - S + 1)), name="mask", upper=1)


def _scattered(b: Heads, c: float) -> ir.Value:
    at = np.argwhere(~CAUSAL)
    zeros = b.const("zeros", np.zeros((S, T), b.dtype.numpy()))
    many = b.op("Expand", b.number("c", c), b.ints("count", len(at)), name="many")
    return b.op("ScatterND", zeros, b.const("at", at), many, name="mask")


def _multiplied(b: Heads, c: float) -> ir.Value:
    upper = b.const("upper", (~CAUSAL).astype(b.dtype.numpy()))
    return b.op("Mul", b.number("c", c), upper, name="mask")


def _layered(b: Heads, c: float) -> ir.Value:
    """Through every op that moves numbers about."""
    mask = b.const("c", np.where(CAUSAL, 0, c).astype(np.float64))
    mask = b.op("Cast", mask, name="cast", to=b.dtype)
    mask = b.op("Unsqueeze", mask, b.ints("front", 0, 1), name="rank4")
    mask = b.op("Expand", mask, b.ints("repeats", 2, 1, S, T), name="expanded")
    mask = b.op("Concat", mask, mask, name="twice", axis=3)
    mask = b.op("Slice", mask, b.ints("from", 0), b.ints("to", T), b.ints("on", 3), name="cut")
    mask = b.op("Gather", mask, b.ints("rows", 0, 1), name="rows_of", axis=0)
    mask = b.op("Reshape", mask, b.ints("flat", 2, S, T), name="flatter")
    return b.op("Unsqueeze", mask, b.ints("heads", 1), name="mask")


MASKS: dict[str, Callable[[Heads, float], ir.Value]] = {
    "stored": _stored, "selected": _selected, "filled": _filled, "scattered": _scattered,
    "multiplied": _multiplied, "layered": _layered,
}  # fmt: skip


CASES = [
    (kind, old)
    for kind in MASKS
    for old in (LOWEST, -1e9, -65535.0, -1e4, -np.inf)
    if (kind, old) != ("multiplied", -np.inf)  # NaN, as -inf times 0 is
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("kind", "old"), CASES)
def test_masked_keys_stay_at_zero(kind: str, old: float, value: float) -> None:
    b = Heads()
    model = b.finish(b.added(MASKS[kind](b, old)))
    feeds = b.feeds()
    run = MaskValue(value)
    changed = run(model).modified
    assert changed == (old != value)
    if changed:
        (change,) = run.changes
        assert (change.value, change.new, change.sites) == ("c", value, ("masked/Add",))
        assert change.old == np.float64(np.float32(old))
    assert not run.kept
    weights = weights_of(feeds, CAUSAL)
    found = ort.run(model, feeds)
    shown = np.broadcast_to(CAUSAL, found["weights"].shape)
    assert found["weights"][~shown].max() <= (0 if value < -200 else 1e-19)
    assert ort.worst(weights, found["weights"]) < 1e-6
    assert ort.worst(weights @ feeds["v"], found["y"]) < 1e-6


def test_zeros_and_small_numbers_of_a_mask_stay_exactly() -> None:
    b = Heads()
    array = np.where(CAUSAL, -0.25 * np.arange(T), LOWEST).astype(np.float32)
    array[:, 1], array[:, 2] = -0.0, -5e3
    model = b.finish(b.added(b.const("c", array)))
    MaskValue(-255.0)(model)
    stored = model.graph.initializers["c"].const_value
    assert stored is not None
    wanted = np.where(array == np.float32(LOWEST), np.float32(-255), array)
    assert stored.numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("value", VALUES)
def test_the_mask_of_a_bert_and_a_causal_one_before_it(value: float) -> None:
    """(1 - mask)·min added where GPT-2 selected a number in the place of scores: two constants."""
    b = Heads()
    picked = b.op("Where", b.seen, b.scores, b.number("first", -1e9), name="picked")
    mask = b.op("Mul", b.not_padded(), b.number("second", LOWEST), name="mask")
    model = b.finish(b.op("Add", picked, mask, name="masked"))
    feeds = b.feeds()
    run = MaskValue(value)
    run(model)
    sites = {(c.value, round(c.old), c.new, c.sites) for c in run.changes}
    assert sites == {
        ("first", -1000000000, value, ("picked/Where",)),
        ("second", round(LOWEST), value, ("masked/Add",)),
    }
    seen = CAUSAL[None, None] & feeds["attention_mask"].astype(bool)[:, None, None]
    found = ort.run(model, feeds)
    assert ort.worst(weights_of(feeds, seen), found["weights"]) < 1e-6
    assert any("rows that hide every key" in note for note in run.notes)


@pytest.mark.parametrize("old", [-65504.0, -1e4, -np.inf])
def test_fp16(old: float) -> None:
    b = Heads(F16)
    model = b.finish(b.added(_selected(b, old)))
    run = MaskValue(-255.0)
    run(model)
    assert [(c.old, c.new) for c in run.changes] == [(old, -255.0)]
    found = ort.run(model, b.feeds())["weights"]
    assert found[np.broadcast_to(~CAUSAL, found.shape)].max() == 0
    assert ort.worst(weights_of(b.feeds(), CAUSAL), found) < 2e-3


@pytest.mark.parametrize("seen", [True, False])
def test_a_constant_condition_that_shows_a_key_to_every_row(seen: bool) -> None:
    """No row can be NaN, whichever way round the condition is, and nothing is said of any."""
    b = Heads()
    condition = b.const("condition", CAUSAL if seen else ~CAUSAL)
    picked = [b.scores, b.number("c", -np.inf)]
    model = b.finish(b.op("Where", condition, *picked[:: 1 if seen else -1], name="masked"))
    run = MaskValue(-255.0)
    run(model)
    assert [change.sites for change in run.changes] == [("masked/Where",)]
    assert not run.notes
    assert not run.kept
    assert ort.worst(weights_of(b.feeds(), CAUSAL), ort.run(model, b.feeds())["weights"]) < 1e-6


def test_a_mask_that_is_asked_where_it_hides_nothing() -> None:
    """Equal(mask + flag, 1), as transformers finds the keys that only padding hides."""
    b = Heads()
    mask = b.op("Where", b.seen, b.number("zero", 0.0), b.number("c", LOWEST), name="mask")
    hole = b.op("Equal", b.op("Add", mask, b.not_padded(), name="both"), b.number("flag", 1.0),
                name="padded")  # fmt: skip
    model = b.finish(b.added(b.op("Where", hole, b.number("d", LOWEST), mask, name="opened")))
    before = ort.run(model, b.feeds())
    run = MaskValue(-255.0)
    run(model)
    assert {change.value for change in run.changes} == {"c", "d"}
    assert run.kept == []
    assert ort.worst(before["weights"], ort.run(model, b.feeds())["weights"]) < 1e-7


def test_attention_sinks() -> None:
    """gpt-oss: a column behind the scores, and their largest taken off, before the softmax."""
    b = Heads()
    sinks = b.const("sinks", np.full((2, 2, S, 1), 0.3, np.float32))
    both = b.op("Concat", b.added(_stored(b, LOWEST)), sinks, name="both", axis=3)
    top = b.op("ReduceMax", both, b.ints("last", -1), name="top")
    weights = b.op("Softmax", b.op("Sub", both, top, name="less"), name="all", axis=-1)
    cut = b.op("Slice", weights, b.ints("from", 0), b.ints("to", T), b.ints("on", 3), name="out")
    model = b.model([(cut, F32, (2, 2, S, T))], 21)
    infer_model(model)
    before = ort.run(model, b.feeds())["out"]
    run = MaskValue(-255.0)
    run(model)
    assert [change.sites for change in run.changes] == [("masked/Add",)]
    assert ort.worst(before, ort.run(model, b.feeds())["out"]) < 1e-7


def test_a_constant_that_goes_elsewhere_is_copied() -> None:
    b = Heads()
    c = b.number("c", LOWEST)
    mask = b.op("Where", b.seen, b.number("zero", 0.0), c, name="mask")
    bounded = b.op("Max", b.added(mask), c, name="bounded")
    other = b.op("Mul", b.value, c, name="other")
    model = b.finish(bounded, other)
    before = ort.run(model, b.feeds())
    run = MaskValue(-255.0)
    run(model)
    found = {name: v.const_value.numpy().item() for name, v in model.graph.initializers.items()
             if name.startswith("c") and v.const_value is not None}  # fmt: skip
    assert found == {"c": LOWEST, "c/masked": -255.0}
    after = ort.run(model, b.feeds())
    np.testing.assert_array_equal(before["other"], after["other"])
    assert ort.worst(before["weights"], after["weights"]) < 1e-7
    assert run.kept == []
    assert not MaskValue(-255.0)(model).modified


def test_a_mask_that_is_asked_for_its_number() -> None:
    """Rows that are hidden whole become rows of zeros, found by mask == min (transformers 4.38)."""
    b = Heads()
    mask = b.op("Where", b.seen, b.number("zero", 0.0), b.number("c", LOWEST), name="mask")
    at = b.op("Equal", mask, b.number("min", LOWEST), name="at")
    whole = b.op("ReduceMin", b.op("Cast", at, name="as_int", to=I64), b.ints("last", -1),
                 name="whole")  # fmt: skip
    alive = b.op("Sub", b.number("one", 1.0), b.op("Cast", whole, name="f", to=F32), name="alive")
    model = b.finish(b.added(b.op("Mul", mask, alive, name="opened")))
    feeds = b.feeds()
    feeds["seen"] = CAUSAL[None, None].copy()
    feeds["seen"][..., 1, :] = False
    before = ort.run(model, feeds)
    run = MaskValue(-255.0)
    run(model)
    assert [change.value for change in run.changes] == ["c"]
    stored = model.graph.initializers["min"].const_value
    assert stored is not None
    assert stored.numpy() == -255
    assert ort.worst(before["weights"], ort.run(model, feeds)["weights"]) < 1e-7
