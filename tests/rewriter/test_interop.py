"""Our rules in other pipelines."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes

import rewriter
from capabilities import target
from rewriter.passes.fix_dims import fix_dims
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
