"""Experts whose weights are gathered at run time: where that is chosen, and what it computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from rewriter.placement import place
from rewriter.runtime.versions import installed
from rewriter.shared_weights import save_beside
from tests import htp, ort
from tests.experts import Toy, feeds, formula, model

ORT = target("ort-cpu", illegal=["com.microsoft::QMoE", "com.microsoft::MoE"])
STANDARD, QNN, OPENVINO = target("onnx-standard"), target("qnn"), target("openvino")
NORMAL = (("normalize_routing_weights", 1),)
GPT_OSS = (("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 0.75))
ONE = Toy(bits=4, activation="swiglu", fusion=1, experts=96, k=1, shape=(1, 1, 64))
FLOATS = Toy(experts=64, k=3, shape=(1, 1, 64), activation="relu", biased=True)
PACKED, IN_FLOATS, DENSE = (
    "chosen_packed_experts",
    "chosen_dequantized_experts",
    "dense_packed_experts",
)

KERNEL_RUNS = [
    *(
        replace(ONE, bits=bits, block=block, points=points, biased=points, inner=64, k=1)
        for bits, block in ((2, 16), (4, 0), (4, 16), (4, 32), (8, 0), (8, 32))
        for points in (False, True)
    ),
    replace(ONE, k=4, more=GPT_OSS, biased=True, points=True, block=16),
    replace(ONE, shape=(2, 64), k=2, ties=True, biased=True),
    replace(ONE, shape=(2, 2, 64), k=1, ties=True, more=NORMAL),
    replace(ONE, shape=(4, 64), mixing=True, more=NORMAL),
    replace(ONE, shape=(4, 64), mixing=True),
    *(replace(ONE, activation=name, fusion=0, k=2) for name in ("relu", "gelu", "silu")),
]
SCHEMA_ALONE = [
    replace(ONE, activation="geglu", biased=True),
    replace(ONE, activation="geglu", fusion=2, bits=2, block=32, inner=128, points=True),
    replace(ONE, activation="swiglu", fusion=0, bits=8, k=3, biased=True, points=True, inner=48),
    replace(ONE, fusion=2, bits=8, block=32, shape=(3, 64), k=2, more=GPT_OSS),
    replace(ONE, bits=4, bits2=8, inner=48, block=16),
]


@pytest.fixture(autouse=True)
def exact_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of 8-bit blocks that does not round activations."""
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "0")


@pytest.mark.parametrize("toy", KERNEL_RUNS, ids=str)
def test_gathered_codes_equal_the_kernel(toy: Toy) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = ort.run(mixture, given)["y"]
    assert ort.worst(formula(toy, mixture, given), expected) < 2e-6
    report = lower(mixture, ORT)
    assert [fired.rule for fired in report.fired] == [PACKED]
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


@pytest.mark.parametrize("toy", [*KERNEL_RUNS[:12], *SCHEMA_ALONE], ids=str)
def test_codes_dequantized_at_run_time_equal_the_formula(toy: Toy) -> None:
    toy = replace(toy, experts=96 * toy.k * toy.tokens)
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    report = lower(mixture, STANDARD)
    assert [fired.rule for fired in report.fired] == [IN_FLOATS]
    assert not any(node.domain for node in mixture.graph)
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


@pytest.mark.parametrize(
    "toy",
    [
        FLOATS,
        replace(FLOATS, shape=(2, 2, 64), k=2, ties=True, activation="relu2"),
        replace(FLOATS, activation="geglu", fusion=1, more=NORMAL),
        replace(FLOATS, activation="swiglu", fusion=2, more=GPT_OSS),
        replace(FLOATS, activation="swiglu", fusion=0, shape=(2, 64)),
    ],
    ids=str,
)
@pytest.mark.parametrize("ep", [ORT, STANDARD, QNN, OPENVINO], ids=str)
def test_gathered_floats_equal_the_formula(toy: Toy, ep: Target) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    report = lower(mixture, ep)
    assert [fired.rule for fired in report.fired] == ["chosen_experts"]
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


@pytest.mark.parametrize(
    ("toy", "ort_cpu", "standard", "openvino"),
    [
        (ONE, PACKED, IN_FLOATS, IN_FLOATS),
        (replace(ONE, k=2), PACKED, DENSE, DENSE),
        (replace(ONE, k=8), DENSE, DENSE, DENSE),
        (replace(ONE, bits=8, k=6), PACKED, IN_FLOATS, IN_FLOATS),
        (replace(ONE, bits=8, k=8), PACKED, DENSE, DENSE),
        (replace(ONE, shape=(1, 4, 64)), PACKED, DENSE, DENSE),
        (replace(ONE, shape=(1, 8, 64)), DENSE, DENSE, DENSE),
    ],
    ids=str,
)
def test_shape_and_target_choose(toy: Toy, ort_cpu: str, standard: str, openvino: str) -> None:
    for ep, rule in ((ORT, ort_cpu), (STANDARD, standard), (OPENVINO, openvino), (QNN, DENSE)):
        assert lower(model(toy), ep).fired[0].rule == rule, str(ep)


def test_a_target_that_cannot_gather_codes_says_so() -> None:
    with pytest.raises(Stuck) as stuck:
        lower(model(ONE), QNN, disable=[DENSE])
    tried = {t.rule: t.reason for t in stuck.value.report.stuck[0].tried}
    assert tried[PACKED] == tried[IN_FLOATS]
    assert tried[PACKED].startswith("it needs Gather, which [data dtype int8/uint8] is illegal")


def test_few_experts_are_not_gathered_and_the_reason_has_the_numbers() -> None:
    with pytest.raises(Stuck, match=r"2 token\(s\) take 8 of 96 experts: .* one of 24 on"):
        lower(model(replace(ONE, shape=(2, 64), k=4)), ORT, disable=[DENSE])


def test_zero_points_that_share_a_byte_are_left_to_the_dense_form() -> None:
    toy = replace(ONE, bits=4, block=16, inner=48, points=True)
    with pytest.raises(Stuck, match="zero points of an expert share a byte"):
        lower(model(toy), ORT, disable=[DENSE])
    assert lower(model(toy), ORT).fired[0].rule == DENSE


def test_weights_stay_packed_and_are_stored_once() -> None:
    mixture = model(replace(ONE, inner=128, block=32, points=True, biased=True))
    before = sum(tensor.nbytes for tensor in _stored(mixture))
    lower(mixture, ORT)
    after = _stored(mixture)
    assert sum(tensor.nbytes for tensor in after) < before * 1.05
    gathered = [node for node in mixture.graph if op_of(node) == "Gather"]
    assert len(gathered) == 2 * 3 + 1  # codes, scales and zero points of two weights; a bias
    large = [t for t in after if t.nbytes > 9999]
    assert all(isinstance(t, ir.LazyTensor) for t in large if t.dtype == ir.DataType.UINT8)


def _stored(mixture: ir.Model) -> list[ir.TensorProtocol]:
    values = mixture.graph.initializers.values()
    return [value.const_value for value in values if value.const_value is not None]


@pytest.mark.parametrize("toy", [replace(ONE, bits=8, block=32, inner=64, points=True), FLOATS])
def test_a_graph_that_gathers_shares_the_weights_of_one_that_does_not(
    toy: Toy, tmp_path: Path
) -> None:
    """Prompts of 32 tokens take every expert, a step a few of them: the bytes are the same."""
    prompt, step = model(replace(toy, shape=(1, 32, 64))), model(toy)
    given, expected = feeds(toy), formula(toy, step, feeds(toy))
    rules = [lower(mixture, ORT).fired[0].rule for mixture in (prompt, step)]
    assert rules[0].startswith("dense")
    assert rules[1].startswith("chosen")
    ir.save(prompt, tmp_path / "prompt.onnx", external_data="model.onnx.data")
    shared = save_beside(step, tmp_path / "step.onnx", ir.load(tmp_path / "prompt.onnx"))
    assert shared > 0.9 * sum(t.nbytes for t in _stored(model(toy)) if t.size > 9999)
    assert ort.worst(expected, _run(tmp_path / "step.onnx", given)["y"]) < 2e-6


def _run(file: Path, given: ort.Arrays) -> ort.Arrays:
    return dict(place(file, ep="ort-cpu", options={}, feeds=[given]).outputs[0])


def test_half_precision() -> None:
    for toy, ep in (
        (replace(ONE, dtype=ir.DataType.FLOAT16, biased=True, block=16, points=True), STANDARD),
        (replace(ONE, dtype=ir.DataType.FLOAT16, biased=True, more=GPT_OSS), ORT),
        (replace(FLOATS, dtype=ir.DataType.FLOAT16), STANDARD),
    ):
        mixture, given = model(toy), feeds(toy)
        expected = formula(toy, mixture, given)
        lower(mixture, ep)
        found = ort.run(mixture, given)["y"]
        assert found.dtype == np.float16
        assert ort.worst(expected, found.astype(np.float64)) < 5e-3


@pytest.mark.skipif(installed("openvino") is None, reason="needs openvino")
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_openvino_computes_gathered_codes_exactly(bits: int, tmp_path: Path) -> None:
    toy = replace(ONE, bits=bits, block=16, inner=64, points=True, biased=True, ties=True)
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    report = lower(mixture, OPENVINO)
    assert report.fired[0].rule == IN_FLOATS
    ir.save(mixture, tmp_path / "model.onnx")
    placed = place(tmp_path / "model.onnx", ep="openvino", options={}, feeds=[given])
    assert ort.worst(expected, placed.outputs[0]["y"]) < 2e-6


@htp.needs_qnn
def test_gathered_floats_on_htp(tmp_path: Path) -> None:
    toy = replace(FLOATS, shape=(1, 2, 64), ties=True)
    mixture, given = model(toy), feeds(toy)
    expected = {"y": formula(toy, mixture, given)}
    lower(mixture, QNN)
    htp.check(mixture, given, expected, tmp_path)
