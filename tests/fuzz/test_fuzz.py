"""Generated nodes of every op that has a lowering rule, on every target; see :mod:`check`.

A few fixed examples of each op run by default. The long run draws others every time::

    FUZZ_EXAMPLES=400 FUZZ_SEED=1 FUZZ_LOG=counts.jsonl pytest -m slow tests/fuzz

Each example is one node for one target in one place. ``FUZZ_LOG`` gets one line per op: what
became of its examples, the rules that fired, and the reasons of what stayed stuck; with it a
finding is written there too and the run goes on, without it hypothesis makes it small.
"""

from __future__ import annotations

import json
import os
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from capabilities import Target, target
from rewriter.rule import registry
from tests.fuzz import ops
from tests.fuzz.case import STRATEGIES, Case, Draw
from tests.fuzz.check import Outcome, check
from tests.fuzz.place import Place

assert ops.FILES

FEW = 4
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
LOG = os.environ.get("FUZZ_LOG", "")
PLACES = (*[Place.TOP] * 5, Place.BRANCH, Place.BODY, Place.FUNCTION, Place.PARAMETERS)
NOT_DRAWN = {"If", "Loop", "Scan", "Mul"}
"""Ops of which no node alone reaches a rule: control flow is around the others (:class:`Place`),
and Mul is lowered as the end of a norm (test_mul.py)."""

ALONE_STAYS = {"IsNaN"}
"""Ops that are lowered behind another op only, and drawn all the same."""

_TARGETS = [
    *("onnx-standard", "onnx-standard@22", "onnx-standard@18", "qnn@2.3.0", "qnn@2.4.0"),
    *("qnn@2.7.0", "openvino@2025.0.0", "openvino@2026.4.1"),
]


def targets(op: str) -> dict[str, Target]:
    """Those that are measured, and the standard without the op."""
    without = target("onnx-standard", illegal=[op])
    return {f"onnx-standard without {op}": without, **{name: target(name) for name in _TARGETS}}


def lowered_ops() -> list[str]:
    return sorted({rule.op for rule in registry() if rule.pattern is None} - NOT_DRAWN)


def test_every_op_with_a_rule_is_drawn() -> None:
    assert sorted(STRATEGIES) == lowered_ops()


class Tally:
    """What became of the examples of one op."""

    def __init__(self, op: str) -> None:
        self.op = op
        self.labels: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.findings: list[dict[str, str]] = []

    def add(self, outcome: Outcome) -> None:
        self.labels[outcome.label] += 1
        self.rules.update(outcome.rules)
        if outcome.why:
            self.reasons[outcome.why[:300]] += 1

    def line(self) -> str:
        return json.dumps({
            "op": self.op, "examples": self.labels.total(), "labels": self.labels.most_common(),
            "rules": self.rules.most_common(), "reasons": self.reasons.most_common(40),
            "findings": self.findings,
        })  # fmt: skip


def run(op: str, examples: int, *, seed: int | None = None, log: str = "") -> Tally:
    """Draw and check examples of one op.

    Raises:
        Wrong: one is wrong, and there is no log to write it to.
    """
    tally, known = Tally(op), targets(op)

    @hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=seed is None,
        suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @hypothesis.given(st.data())
    def one(data: Any) -> None:
        draw = Draw(data.draw)
        chosen, place = draw.pick(*known), draw.pick(*PLACES)
        case: Case = STRATEGIES[op](draw, op)
        hypothesis.note(f"{case}\nfor {chosen} in {place}")
        try:
            tally.add(check(case, known[chosen], place))
        except Exception as fault:
            if not log:
                raise
            tally.labels["wrong"] += 1
            about = {"case": str(case), "target": chosen, "place": str(place)}
            tally.findings.append(
                {**about, "fault": f"{type(fault).__name__}: {fault}", "trace": _origin(fault)}
            )

    (hypothesis.seed(seed)(one) if seed is not None else one)()
    if log:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(tally.line() + "\n")
    return tally


def _origin(fault: Exception) -> str:
    cause = fault.__cause__ or fault
    return "".join(traceback.format_tb(cause.__traceback__)[-3:])


@pytest.mark.parametrize("op", sorted(STRATEGIES))
def test_a_few(op: str) -> None:
    assert run(op, FEW).labels


@pytest.mark.slow
@pytest.mark.parametrize("op", sorted(STRATEGIES))
def test_many(op: str) -> None:
    tally = run(op, EXAMPLES, seed=SEED, log=LOG)
    assert not tally.findings, tally.findings[0]
    assert tally.labels["lowered"] > 0 or op in ALONE_STAYS, tally.line()
