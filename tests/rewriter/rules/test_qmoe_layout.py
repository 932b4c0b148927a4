"""QMoE in the layout of ONNX Runtime's CUDA kernel: by structure, since nothing here runs it.

That the function stays the same is shown by the formula of :mod:`tests.experts` on both sides.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter import packing
from rewriter.cli import main
from rewriter.facts import facts_of
from rewriter.lowering import lower
from rewriter.nodes import op_of
from tests import ort
from tests.experts import Array, Toy, feeds, formula, model

CUDA = target("ort-cuda")
SWIGLU = Toy(bits=4, activation="swiglu", fusion=1, dtype=ir.DataType.FLOAT16)
GPT_OSS = (("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 0.75))
WIDE = replace(SWIGLU, shape=(1, 5, 128), inner=64)
TOYS = [
    replace(SWIGLU, block=32, biased=True, more=GPT_OSS),
    replace(SWIGLU, biased=True, ties=True, k=3),
    replace(SWIGLU, bits=8, block=16),
    replace(WIDE, block=64, points=True, biased=True),
    replace(WIDE, fusion=0, block=64, points=True, biased=True),
    replace(SWIGLU, fusion=2, block=32, biased=True),
    replace(SWIGLU, activation="geglu", fusion=1),
    replace(SWIGLU, activation="geglu", fusion=2, biased=True),
    Toy(bits=8, activation="silu", biased=True, dtype=ir.DataType.FLOAT16),
    replace(WIDE, bits=2, block=64),
]
NAMES = {"experts_weights": "w", "scales": "s", "experts_bias": "b", "zero_points": "z"}


def repacked(toy: Toy) -> tuple[ir.Model, ir.Node, dict[str, Array]]:
    """The lowered node, and its constants under the names that the formula knows."""
    mixture = model(toy)
    lower(mixture, CUDA)
    (node,) = mixture.graph
    assert op_of(node) == "com.microsoft::QMoE"
    inputs = _named(node)
    stored = {}
    for fc in ("fc1", "fc2"):
        for long, short in NAMES.items():
            value = inputs.get(f"{fc}_{long}")
            if value is not None:
                assert value.const_value is not None
                value.name = f"{fc}_{short}"
                stored[value.name] = np.asarray(value.const_value.numpy())
    return mixture, node, stored


_SCHEMA = (
    *("input", "router_probs", "fc1_experts_weights", "fc1_scales", "fc1_experts_bias"),
    *("fc2_experts_weights", "fc2_scales", "fc2_experts_bias", "fc3_experts_weights"),
    *("fc3_scales", "fc3_experts_bias", "fc1_zero_points", "fc2_zero_points"),
    *("fc3_zero_points", "router_weights"),
)


def _named(node: ir.Node) -> dict[str, ir.Value | None]:
    return dict(zip(_SCHEMA, node.inputs, strict=False))


@pytest.mark.parametrize("toy", TOYS, ids=str)
def test_gates_lie_before_values_and_the_function_is_the_same(toy: Toy) -> None:
    before, given = model(toy), feeds(toy)
    expected = formula(toy, before, given)
    after, node, _ = repacked(toy)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    assert attributes["weights_prepacked"] == 0
    assert attributes["normalize_routing_weights"] == 1
    assert attributes["swiglu_fusion"] == (2 if toy.gated else 0)
    assert attributes["expert_weight_bits"] == toy.bits
    inputs = _named(node)
    assert not any(inputs.get(name) for name in _SCHEMA if name.startswith("fc3"))
    kept = replace(toy, fusion=2 if toy.gated else 0)
    assert np.array_equal(formula(kept, after, given), expected)


def test_rows_of_every_kind_are_moved() -> None:
    toy = replace(WIDE, block=64, points=True, biased=True)
    before = {
        name: np.asarray(value.const_value.numpy())
        for name, value in model(toy).graph.initializers.items()
        if value.const_value is not None
    }
    _, _, after = repacked(toy)
    for name in ("fc1_w", "fc1_s", "fc1_b", "fc1_z"):
        wanted = np.concatenate([before[name][:, 0::2], before[name][:, 1::2]], axis=1)
        assert np.array_equal(after[name], wanted), name
    for name in ("fc2_w", "fc2_s", "fc2_b", "fc2_z"):
        assert np.array_equal(after[name], before[name]), name


@pytest.mark.parametrize("block", [0, 32])
def test_zero_points_that_the_kernel_implies_are_left_out(block: int) -> None:
    toy = replace(SWIGLU, block=block, points=True)
    mixture = model(toy)
    for fc in ("fc1", "fc2"):
        value = mixture.graph.initializers[f"{fc}_z"]
        assert value.const_value is not None
        shape = value.const_value.shape.numpy()
        middle = packing.pack_bits(np.full((*shape[:-1], shape[-1] * 2), 8, np.uint8), 4)
        value.const_value = ir.tensor(middle, name=value.name)
    lower(mixture, CUDA)
    (node,) = mixture.graph
    assert len(node.inputs) == 7  # up to fc2_scales


@pytest.mark.parametrize(
    ("toy", "why"),
    [
        (replace(SWIGLU, dtype=ir.DataType.FLOAT), "kernels take float16 and bfloat16 alone"),
        (replace(SWIGLU, points=True), "no zero points with scales per row"),
        (replace(SWIGLU, points=True, block=32), "zero points in blocks of 64 and more alone"),
        (replace(SWIGLU, bits=2, block=32), "2 bits in blocks of 64 and 128 alone"),
        (replace(SWIGLU, mixing=True), "not among the inputs of its kernel"),
    ],
    ids=str,
)
def test_what_the_kernel_does_not_take_becomes_products(toy: Toy, why: str) -> None:
    mixture, given = model(toy), feeds(toy)
    facts = facts_of(mixture.graph[0], mixture.opset_imports)
    assert why in {row.why for row in CUDA.rows_of(facts.op) if row.holds(facts)}
    expected = formula(toy, mixture, given)
    report = lower(mixture, CUDA)
    assert [fired.rule for fired in report.fired] == ["dense_packed_experts"]
    found = ort.run(mixture, given)["y"].astype(np.float64)
    assert ort.worst(expected, found) < (2e-6 if toy.dtype == ir.DataType.FLOAT else 5e-3)


def test_codes_packed_for_cutlass_are_told_by_their_shape() -> None:
    mixture = model(replace(SWIGLU, inner=64))
    value = mixture.graph.initializers["fc1_w"]
    assert value.const_value is not None
    packed = value.const_value.numpy().reshape(4, 64, 64)  # (E, K, N/2), not (E, N, K/2)
    value.const_value = ir.tensor(packed, name="fc1_w")
    value.shape = ir.Shape(packed.shape)
    report = lower(mixture, CUDA, allow_stuck=True)
    (stuck,) = report.stuck
    assert all("has shape" in tried.reason for tried in stuck.tried if "takes" not in tried.reason)


def test_other_targets_are_left_alone() -> None:
    for ep in ("ort-cpu", "qnn@2.7.0", "openvino"):
        report = lower(model(replace(SWIGLU, activation="geglu")), target(ep))
        assert "concatenated_experts" not in {fired.rule for fired in report.fired}


def test_the_report_says_that_nothing_was_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ir.save(model(replace(SWIGLU, block=32)), tmp_path / "model.onnx")
    report = tmp_path / "report.json"
    words = [str(tmp_path / "model.onnx"), "--ep", "ort-cuda", "-o", str(tmp_path / "out")]
    assert main([*words, "--report", str(report)]) == 0
    graph: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]
    assert graph["placement"] is None
    assert any("not run, no runtime here" in note for note in graph["notes"])
    assert "not run, no runtime here" in "".join(capsys.readouterr())
    assert graph["ops_after"] == {"com.microsoft::QMoE": 1}
