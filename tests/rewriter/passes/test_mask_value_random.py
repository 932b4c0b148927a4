"""Random masks: rows that see a key never change, and others only where a note says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from rewriter.passes.mask_value import MaskValue
from tests import ort
from tests.rewriter.passes.test_mask_value import BOOL, CAUSAL, F32, LOWEST, VALUES, Heads, S, T

OLD = [LOWEST, -1e9, -65535.0, -1e4, -np.inf]
SEEDS = 120


class Draw(Heads):
    """A random graph of masks and scores."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = np.random.default_rng(seed)
        self.zero = self.number("zero", 0.0)
        wide = self.op("Unsqueeze", self.padding, self.ints("axes", 1, 2), name="wide")
        random = self.draw.random((1, 1, S, T)) < 0.7
        self.conditions = [
            self.seen,
            self.op("Cast", wide, name="not_padded", to=BOOL),
            self.const("causal", CAUSAL[None, None]),
            self.const("random", random),
        ]
        self.hiding: list[ir.Value] = []

    def made(self, op: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        return self.op(op, *inputs, name=f"v{len(self.nodes)}", **attributes)

    def any_of(self, values: list[ir.Value]) -> ir.Value:
        return values[int(self.draw.integers(len(values)))]

    def hides(self) -> ir.Value:
        """A number, often one that is used elsewhere too."""
        if not self.hiding or self.draw.random() < 0.5:
            number = OLD[int(self.draw.integers(len(OLD)))]
            self.hiding.append(self.number(f"c{len(self.hiding)}", number))
        return self.any_of(self.hiding)

    def mask(self, deep: int = 0) -> ir.Value:
        shown = CAUSAL if self.draw.random() < 0.6 else self.draw.random((S, T)) < 0.6
        old = np.float32(OLD[int(self.draw.integers(len(OLD)))])
        stored = np.where(shown, np.float32(0), old)
        kinds: list[Callable[[], ir.Value]] = [
            lambda: self.made("Where", self.any_of(self.conditions), self.zero, self.hides()),
            lambda: self.made("Mul", self.not_padded(f"hole{len(self.nodes)}"), self.hides()),
            lambda: self.const(f"m{len(self.initializers)}", stored),
            lambda: self.made("Add", self.mask(deep + 1), self.mask(deep + 1)),
            lambda: self.made("Min", self.mask(deep + 1), self.mask(deep + 1)),
            lambda: self.made("Max", self.mask(deep + 1), self.hides()),
            lambda: self.made(
                "Where", self.any_of(self.conditions), self.mask(deep + 1), self.hides()
            ),
            lambda: self.asked(self.mask(deep + 1)),
        ]
        return kinds[int(self.draw.integers(len(kinds) if deep < 3 else 3))]()

    def asked(self, mask: ir.Value) -> ir.Value:
        other = self.zero if self.draw.random() < 0.5 else self.hides()
        return self.made("Where", self.made("Equal", mask, other), mask, self.hides())

    def not_padded(self, name: str = "hole") -> ir.Value:
        flag = self.made("Cast", self.conditions[1], to=F32)
        return self.op("Sub", self.number(f"one{len(self.nodes)}", 1.0), flag, name=name)

    def graph(self) -> ir.Model:
        scores = self.scores
        for _ in range(int(self.draw.integers(1, 3))):
            kind = int(self.draw.integers(3))
            if kind == 0:
                scores = self.made("Where", self.any_of(self.conditions), scores, self.hides())
            else:
                scores = self.made("Add", scores, self.mask())
                scores = self.made("Max", scores, self.hides()) if kind == 2 else scores
        return self.finish(scores, guard=self.draw.random() < 0.4)


def _sees(model: ir.Model, feeds: ort.Arrays) -> np.ndarray:
    """Rows with a key that nothing hides: all scores are 0 once the queries are."""
    probe = model.clone()
    before = next(node for node in probe.graph if node.op_type == "Softmax").inputs[0]
    assert before is not None
    probe.graph.outputs[:] = [before]
    (masked,) = ort.run(probe, {**feeds, "q": feeds["q"] * 0}).values()
    return np.asarray((masked > -5000).any(axis=-1, keepdims=True))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_random_masks() -> None:
    changed = kept = 0
    for seed in range(SEEDS):
        b = Draw(seed)
        model = b.graph()
        first = str(model.graph.outputs[0].name)
        feeds = b.feeds()
        feeds["attention_mask"] = (b.draw.random((2, T)) < 0.7).astype(np.int64)
        feeds["seen"] = b.draw.random((1, 1, S, T)) < 0.7
        before, sees = ort.run(model, feeds)[first], _sees(model, feeds)
        run = MaskValue(VALUES[seed % 3])
        run(model)
        changed, kept = changed + bool(run.changes), kept + bool(run.kept)
        apart = np.abs(np.nan_to_num(before) - np.nan_to_num(ort.run(model, feeds)[first]))
        noted = any("rows that hide every key" in note for note in run.notes)
        apart = np.where(sees | (not noted), apart, 0)
        assert apart.max() < 1e-4, f"seed {seed}: {run.changes}, {run.kept}"
    assert changed > 0.7 * SEEDS
    assert kept > 0.1 * SEEDS
