"""Laws 13 and 15 of the engine: all or nothing, equal runs, weights left alone; and doubts."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from rewriter.lowering import Stuck, lower, plan
from rewriter.rule import Registry, lowers
from rewriter.site import Site
from rewriter.tape import Tape
from tests import toys
from tests.decoders import Decoder, decoder

F32 = ir.DataType.FLOAT


def test_law_13_all_or_nothing_unless_asked() -> None:
    rows = toys.target("Relu | any | illegal", "Sigmoid | any | illegal")
    model = toys.chain(["Relu", "Sigmoid"])
    before = ir.to_proto(model)
    with pytest.raises(Stuck, match="no rule lowers it"):
        lower(model, rows, rules=toys.relu_as_max())
    assert ir.to_proto(model) == before
    report = lower(model, rows, rules=toys.relu_as_max(), allow_stuck=True)
    assert [n.op_type for n in model.graph] == ["Max", "Sigmoid"]
    assert [node.op for node in report.stuck] == ["Sigmoid"]


def test_law_13_its_own_output_is_left_alone_and_runs_are_identical() -> None:
    rows = toys.target(
        "com.microsoft::SkipSimplifiedLayerNormalization | any | illegal",
        "SimplifiedLayerNormalization | any | illegal",
    )
    texts = []
    for _ in range(2):
        model = decoder()
        assert lower(model, rows).changed
        texts.append(ir.to_proto(model).SerializeToString(deterministic=True))
    assert texts[0] == texts[1]
    again = ir.from_proto(ir.to_proto(model))
    assert not lower(again, rows).changed
    assert [n.name for n in again.graph] == [n.name for n in model.graph]


def test_law_13_a_fusion_needs_an_illegal_pattern_or_a_legal_result() -> None:
    model = decoder(Decoder(weights="int4_qdq"))
    unwanted = toys.target("DequantizeLinear | any | legal", "MatMul | any | legal")
    assert not plan(model, unwanted).changed
    illegal = toys.target("DequantizeLinear | block_size>=1 | illegal")
    assert plan(model, illegal).sites()["matmul_nbits", "MatMul"] == 11
    raised = toys.target("DequantizeLinear | any | legal",
                         "com.microsoft::MatMulNBits | any | legal")  # fmt: skip
    assert plan(model, raised).sites()["matmul_nbits", "MatMul"] == 11


def test_law_15_weights_stay_packed_and_lazy() -> None:
    """D27: no Q/DQ is folded, and nothing is read until the model is saved."""
    model = decoder(Decoder(weights="int4_qdq"))
    before = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    lower(model, toys.target("DequantizeLinear | any | illegal"), keep_sites=False)
    tensors = [v.const_value for v in model.graph.initializers.values() if v.const_value]
    assert sum(t.nbytes for t in tensors) <= before
    codes = [t for t in tensors if t.name and t.name.endswith("/codes")]
    assert len(codes) == 11
    assert all(isinstance(t, ir.LazyTensor) for t in codes)


def test_a_report_that_says_worse_does_not_save_an_illegal_node() -> None:
    rows = toys.target("Relu | any | illegal", "Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=toys.relu_as_max())
    assert report.sites() == {("max_zero", "Relu"): 1}


def test_a_report_alone_decides_where_nothing_was_measured() -> None:
    rows = toys.target("Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=toys.relu_as_max())
    assert report.sites() == {("max_zero", "Relu"): 1}


def test_a_doubt_is_only_said_where_the_rule_is_not_free() -> None:
    rows = toys.target("Relu | any | legal", "Relu | rank 2 | wrong | reported:somebody")
    report = lower(toys.chain(["Relu"]), rows, rules=toys.relu_as_max())
    assert not report.changed
    (note,) = report.notes
    assert "doubt: Relu [rank 2] x 1" in note
    assert "reported:somebody" in note


def test_memory_that_runs_out_in_a_rule_is_no_fault_of_the_rule() -> None:
    rules = Registry()

    @lowers("Relu", emits=("Max",), into=rules)
    def build(op: Tape, site: Site) -> ir.Value:
        op.Max(site.input("X"), site.input("X"))
        raise MemoryError

    model = toys.chain(["Relu"])
    with pytest.raises(MemoryError):
        lower(model, toys.target("Relu | any | illegal"), rules=rules)
    assert [node.op_type for node in model.graph] == ["Relu"]
    assert len(model.graph.inputs[0].uses()) == 1
