"""Matching and rewriting 1,000 nodes, all our rules loaded, beside onnxscript's rewriter."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx_ir as ir

from capabilities import Target, target
from rewriter import rule_set
from rewriter.lowering import lower
from rewriter.pattern_rules import LoweringRuleSet
from tests import toys
from tests.benchmarks.cost import Line, cpu, in_process, in_turn, line

NODES = 1000
_OPS = ("Relu", "Neg", "com.microsoft::FastGelu", "Abs")
_TARGET = "onnx-standard"
_GOAL = 0.2
"""Of either; a :func:`rule_set` hands the model to our engine, so the second is never met."""


def chain(size: int) -> ir.Model:
    """Elementwise nodes, a quarter of which ``onnx-standard`` does not have."""
    return toys.chain([_OPS[i % len(_OPS)] for i in range(size)], shape=(1, 4, 8), opset=20)


def _lowered(to: Target) -> Callable[[], object]:
    model = chain(NODES)
    return lambda: lower(model, to, allow_stuck=True, keep_sites=False)


def _theirs(rules: LoweringRuleSet | None = None) -> Callable[[], object]:
    from onnxscript.rewriter import rewrite

    model = chain(NODES)

    def work() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            rewrite(model, rules) if rules is not None else rewrite(model)

    return work


def lines(_folder: Path, runs: int) -> Iterator[Line]:
    """Three rows: our match alone, then match and rewrite against their rules and against ours."""
    legal = toys.target(*(f"{op} | any | legal" for op in _OPS))
    standard = target(_TARGET)
    rules = rule_set(_TARGET)
    theirs, same = in_process(_theirs), in_process(lambda: _theirs(rules))
    ours = in_process(lambda: _lowered(standard))
    for warm in (ours, theirs, same):
        warm()
    name = f"match + rewrite, {NODES:,} nodes"
    for work, mine, against, other, goal in (
        (f"match, {NODES:,} nodes", in_process(lambda: _lowered(legal)), "default", theirs, _GOAL),
        (name, ours, "default", theirs, _GOAL),
        (name, ours, "our", same, _GOAL),
    ):
        pairs = in_turn(2 * runs + 1, mine, other)
        yield line(work, f"onnxscript.rewriter, {against} rules", goal, pairs, cpu, "CPU s")
