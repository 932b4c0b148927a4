"""A graph with quantized activations under the target's table once more."""

from __future__ import annotations

import onnx_ir as ir

from capabilities import Target, Verdict
from rewriter.facts import facts_of
from rewriter.nodes import op_of
from rewriter.record import Report, StuckNode, count_ops


def judge_again(model: ir.Model, target: Target, report: Report) -> None:
    """Put what the table says of every node now into the report of the rewriting before.

    Args:
        model: with its new nodes.
        target: whose table.
        report: gets what is stuck or unknown now, and the ops that there are.
    """
    known = {node.node: node for node in report.stuck}
    report.stuck.clear()
    report.unknown.clear()
    for node in model.graph:
        judged = target.judge(facts_of(node, model.opset_imports, target))
        name, op = node.name or "", op_of(node)
        if judged.verdict is Verdict.UNKNOWN:
            report.unknown.append((name, op))
        elif judged.verdict is not Verdict.LEGAL:
            before = known.get(name)
            tried = () if before is None else before.tried
            report.stuck.append(StuckNode(name, op, judged.form, judged.why, tried))
    report.ops_after = count_ops(model.graph)
