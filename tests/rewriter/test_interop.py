"""Our rules in other pipelines."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes

import rewriter
from capabilities import target
from rewriter.passes.fix_dims import fix_dims
from tests import ort
from tests.decoders import decoder


def test_the_public_names() -> None:
    for name in rewriter.__all__:
        assert getattr(rewriter, name) is not None


def test_lower_runs_in_a_pass_manager_of_onnx_ir() -> None:
    model = decoder()
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    lowering = rewriter.Lower(target("qnn", "2.7.0"))
    result = ir.passes.PassManager([lowering], steps=2)(model)
    assert result.modified
    assert lowering.report is not None
    assert not lowering.report.changed, "the second step found nothing left to do"
    assert not any(n.op_type == "GroupQueryAttention" for n in model.graph)


def test_a_rule_set_for_onnxscript() -> None:
    import onnxscript.rewriter

    model = decoder()
    fix_dims(model, {"batch": 1, "seq": 1, "past": 8})
    rules = rewriter.rule_set("qnn@2.7.0")
    given = {"input_ids": np.array([[5]]), "attention_mask": np.ones((1, 9), np.int64)}
    rng = np.random.default_rng(0)
    for value in model.graph.inputs:
        if (value.name or "").startswith("past"):
            given[str(value.name)] = rng.standard_normal((1, 2, 8, 16)).astype(np.float32)
    expected = ort.run(model, given)["logits"]
    proto = onnxscript.rewriter.rewrite(ir.to_proto(model), rules)
    assert {node.op_type for node in proto.graph.node}.isdisjoint(
        {"GroupQueryAttention", "SkipSimplifiedLayerNormalization"}
    )
    assert rules.report is not None
    assert len(rules.report.fired) == 6
    assert ort.worst(expected, ort.run(ir.from_proto(proto), given)["logits"]) < 2e-6


def test_a_rule_set_leaves_what_is_stuck() -> None:
    import onnxscript.rewriter

    model = decoder()  # dims are not fixed: nothing can run on HTP
    rules = rewriter.rule_set("qnn@2.7.0")
    onnxscript.rewriter.rewrite(model, rules)
    assert rules.report is not None
    assert rules.report.stuck
