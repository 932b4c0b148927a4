"""A node that nothing uses is lowered like any other, and leaves no site to compare."""

from __future__ import annotations

import onnx_ir as ir

from capabilities import target
from rewriter.lowering import lower
from tests.graphs import Builder


def test_a_dead_node_is_no_site() -> None:
    """The genai builder leaves the last norm without a use where it takes gate_up for lm_head."""
    b = Builder()
    x = b.input("x", ir.DataType.FLOAT, (1, 2, 8))
    scale = b.const("scale", b.rng.standard_normal(8).astype("float32"))
    b.op("com.microsoft::SkipSimplifiedLayerNormalization", x, x, scale, name="dead")
    y = b.op("Neg", x, name="y")
    model = b.model([(y, ir.DataType.FLOAT, (1, 2, 8))])
    report = lower(model, target("qnn", "2.7.0"))
    assert [site.before for site in report.fired] == [None]
    assert [n.op_type for n in model.graph] == ["Neg"]
