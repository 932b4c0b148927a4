"""What is built for Attention: no more nodes than needed, none that HTP refuses."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.lowering import lower
from tests import ort
from tests.attention import CAUSAL, DEAD, I64, QNN, STANDARD, Case, inputs, lowered, node
from tests.attention_cases import CASES


@pytest.mark.parametrize(
    "case",
    [
        Case("no mask"),
        Case("one token sees its past", CAUSAL, tokens=1, past=3, keys=1),
        Case("window wider than all", {"left_window_size": 9}, past=3, keys=3, opset=25),
        Case("constant lengths that are full", nonpad=(5, 5), constant=True),
        Case("constant mask that hides nothing", mask="bool", hide=(), constant=True),
    ],
    ids=lambda case: case.name,
)
def test_what_hides_nothing_costs_nothing(case: Case) -> None:
    _, report = lowered(case, inputs(case))
    left = set(report.ops_after) - {"Concat"}
    assert left == {"MatMul", "Mul", "Reshape", "Softmax", "Transpose"}


@pytest.mark.parametrize(
    "case",
    [
        Case("causal", CAUSAL, tokens=5),
        Case("causal on a past", CAUSAL, past=3, keys=3),
        Case("constant mask", mask="bool", constant=True),
        Case("constant -inf mask", mask=-np.inf, constant=True),
        Case("constant lengths", CAUSAL, nonpad=(3, 4), constant=True),
    ],
    ids=lambda case: case.name,
)
def test_no_row_is_guarded_that_cannot_be_empty(case: Case) -> None:
    _, report = lowered(case, inputs(case))
    assert report.ops_after["Mul"] == 1
    assert "ReduceMax" not in report.ops_after


def test_a_constant_mask_is_folded() -> None:
    """Trap 11 of lowering.md: HTP does not even take a constant bool mask of the fused op."""
    case = Case("constant", mask="bool", constant=True, kv_heads=4)
    model, report = lowered(case, inputs(case))
    assert dict(report.ops_after) == {"Add": 1, "MatMul": 2, "Mul": 1, "Softmax": 1, "Transpose": 1}
    assert not [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.BOOL]


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_what_htp_does_not_take_is_not_built(case: Case) -> None:
    """No tensor of rank 5, no empty tensor, no positions in floats."""
    model, _ = lowered(case, inputs(case))
    for n in model.graph:
        for value in (*n.inputs, *n.outputs):
            if value is not None:
                assert value.shape is not None
                assert len(value.shape) <= 4
                assert 0 not in value.shape.numpy()
        if n.op_type == "LessOrEqual":
            assert n.inputs[0] is not None
            assert n.inputs[0].dtype in {ir.DataType.INT32, I64}


def two_layers(case: Case, feeds: ort.Arrays) -> ir.Model:
    """The node twice over the same mask and lengths, the second on the first's output."""
    model = node(case, feeds)
    first = next(iter(model.graph))
    second = ir.Node("", "Attention", [first.outputs[0], *first.inputs[1:]],
                     list(first.attributes.values()), name="second")  # fmt: skip
    model.graph.append(second)
    y = second.outputs[0]
    y.name, y.type, y.shape = "Y2", first.outputs[0].type, first.outputs[0].shape
    model.graph.outputs[0] = y
    return model


@pytest.mark.parametrize(
    "case",
    [
        Case("causal", CAUSAL, tokens=5, out_size=8),
        Case("bool mask", mask="bool", out_size=8),
        Case("short float mask", mask="float", mask_shape=(3, 4), out_size=8),
        Case("lengths", CAUSAL, nonpad=(3, 4), out_size=8),
    ],
    ids=lambda case: case.name,
)
def test_layers_share_masks(case: Case) -> None:
    feeds = inputs(case)
    counts = []
    for model in (node(case, feeds), two_layers(case, feeds)):
        after = lower(model, QNN).ops_after
        own = {"Add", "MatMul", "Mul", "Reshape", "Softmax", "Transpose"}
        counts.append({op: after[op] for op in after if op not in own})
        masked = after["Reshape"] - 2 * after["Softmax"]
        counts[-1]["Reshape of the mask"] = masked
    assert counts[0] == counts[1]


@pytest.mark.parametrize("changed", [{"left_window_size": 1}, {"is_causal": 0}], ids=str)
def test_d08_layers_that_differ_share_nothing(changed: dict[str, int]) -> None:
    """Global and sliding layers over one mask; the sequence is longer than the window."""
    case = Case("D08", {**CAUSAL, "left_window_size": 3}, tokens=6, keys=6, out_size=8, opset=25,
                mask="bool", mask_shape=(6, 6))  # fmt: skip
    feeds = inputs(case)
    model = two_layers(case, feeds)
    for name, value in changed.items():
        list(model.graph)[1].attributes[name] = ir.AttrInt64(name, value)
    expected = ort.run(model, feeds)["Y2"]
    lower(model, QNN)
    assert ort.worst(expected, ort.run(model, feeds)["Y2"]) < 2e-6
    same = two_layers(case, feeds)
    assert ort.worst(expected, ort.run(same, feeds)["Y2"]) > 1e-2


@pytest.mark.parametrize(
    "case",
    [
        Case("causal", CAUSAL, tokens=5),
        Case("past, rank 3", CAUSAL, past=3, keys=3, rank=3, present=True),
        Case("lengths", CAUSAL, nonpad=(3, 4)),
        Case("mask of all sequences", mask="bool", hide=DEAD),
        Case("scores", CAUSAL, scores=3),
    ],
    ids=lambda case: case.name,
)
def test_the_batch_may_be_known_at_run_time_alone(case: Case) -> None:
    feeds = inputs(case)
    expected = ort.run(node(case, feeds), feeds)
    model = node(case, feeds, batch="batch")
    lower(model, STANDARD)
    actual = ort.run(model, feeds)
    for name, array in expected.items():
        assert ort.worst(array, actual[name]) < 2e-6


def test_positions_are_exact_where_float_counting_is_not() -> None:
    """Trap 1 of lowering.md: above 2,048 counts in fp16 are off by one; integers are not."""
    case = Case("long", CAUSAL, tokens=2, keys=4096, batch=1, heads=2, kv_heads=1, nonpad=(3001,))
    feeds = inputs(case)
    expected = ort.run(node(case, feeds), feeds)["Y"]
    assert ort.worst(expected, ort.run(lowered(case, feeds)[0], feeds)["Y"]) < 2e-6


@pytest.mark.parametrize("version", ["2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0"])
def test_every_qnn_version_takes_what_is_built(version: str) -> None:
    qnn = target("qnn", version, illegal=("Attention",))
    for case in CASES[::5]:
        report = lower(node(case, inputs(case)), qnn)
        assert (report.stuck, report.unknown) == ([], []), case.name
