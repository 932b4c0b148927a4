"""Our rules as an ``onnxscript.rewriter`` rule set.

``onnxscript.rewriter.rewrite(model, rule_set("qnn@2.7.0"))``, and whatever else takes a
``RewriteRuleSet``, then runs our engine: the laws of the engine hold inside other pipelines too.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import pattern

from capabilities import Target, target
from rewriter.lowering import lower, plan
from rewriter.record import Report


class LoweringRuleSet(pattern.RewriteRuleSet):
    """A rule set whose application is a run of the engine; nodes that are stuck stay.

    Attributes:
        report: of the last run.
        rules: empty: no rule of ours is a pattern that onnxscript could apply by itself.
    """

    def __init__(self, on: Target) -> None:
        self.rules: list[pattern.RewriteRule] = []
        self.remove_unused_nodes = False
        self.report: Report | None = None
        self._target = on

    def __repr__(self) -> str:
        return f"rule_set('{self._target}')"

    def apply_to_model(
        self, model: ir.Model, *, verbose: int | None = None, tracer: Any = None
    ) -> int:
        """Lower a model in place (with a tracer: change nothing); returns how many sites it has."""
        del verbose
        if tracer is not None:
            self.report = plan(model, self._target)
        else:
            self.report = lower(model, self._target, allow_stuck=True, keep_sites=False)
        return len(self.report.fired)


def rule_set(on: Target | str) -> LoweringRuleSet:
    """Our rules for a target (or ``EP[@VERSION]``) as an onnxscript rule set.

    Raises:
        UnknownTarget: there is no such EP or version.
    """
    return LoweringRuleSet(target(on) if isinstance(on, str) else on)
