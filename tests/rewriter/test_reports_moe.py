"""Public reports of this field on mixtures of experts (../shared/reports.md, D35 and D36)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.lowering import lower
from tests import ort
from tests.experts import Toy, feeds, model
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
QNN = target("qnn", "2.7.0")
GPT_OSS: dict[str, Any] = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}
GATES, VALUES = np.array([0.5, -1.0, 2.0, 9.0]), np.array([1.0, 3.0, -8.0, 0.25])


def _moe(fusion: int, **attributes: Any) -> ir.Model:
    """Two experts whose gates and values are x[0]·GATES and x[0]·VALUES, 3 times in the second.

    No bias of fc1 is given, so the fourth input is an empty slot before fc2.
    """
    b = Builder()
    x, r = b.input("x", F32, (1, 4)), b.input("r", F32, (1, 2))
    rows = np.stack([GATES, VALUES], axis=1) if fusion == 1 else np.stack([GATES, VALUES])
    fc1 = np.zeros((2, 8, 4), np.float32)
    fc1[0, :, 0] = rows.reshape(-1)
    fc1[1] = 3 * fc1[0]
    fc2 = np.stack([np.eye(4), np.eye(4)]).astype(np.float32)
    y = b.op("com.microsoft::MoE", x, r, b.const("fc1", fc1), None, b.const("fc2", fc2), name="y",
             activation_type="swiglu", swiglu_fusion=fusion, k=1, **attributes)  # fmt: skip
    return b.model([(y, F32, (1, 4))])


def _given() -> ort.Arrays:
    """x[0] is 1, and the second expert has a probability of 3/4."""
    x, r = np.array([[1, 0, 0, 0]], np.float32), np.log([[0.25, 0.75]]).astype(np.float32)
    return {"x": x, "r": r}


@pytest.mark.parametrize("fusion", [1, 2], ids=["interleaved", "concatenated"])
@pytest.mark.parametrize("attributes", [{}, GPT_OSS], ids=["defaults", "gpt-oss"])
@pytest.mark.parametrize("normalize", [0, 1])
def test_d35_attributes_and_layout_are_those_of_the_node(
    fusion: int, attributes: dict[str, Any], normalize: int
) -> None:
    """Defaults are alpha 1, beta 0, no limit, and the raw probability as the weight."""
    alpha = attributes.get("activation_alpha", 1.0)
    beta = attributes.get("activation_beta", 0.0)
    limit = attributes.get("swiglu_limit", np.inf)
    g, v = np.minimum(3 * GATES, limit), np.clip(3 * VALUES, -limit, limit)
    expected = (1 if normalize else 0.75) * g / (1 + np.exp(-alpha * g)) * (v + beta)
    moe, given = _moe(fusion, normalize_routing_weights=normalize, **attributes), _given()
    if fusion == 1:  # the CPU kernel has no other
        assert ort.worst(expected[None], ort.run(moe, given)["y"]) < 1e-6
    lower(moe, QNN)
    assert not any(node.op_type == "MoE" for node in moe.graph)
    assert ort.worst(expected[None], ort.run(moe, given)["y"]) < 1e-6


def test_d35_the_two_layouts_and_activations_are_told_apart() -> None:
    """What went wrong without a word: a checkpoint of one kind in a kernel for the other."""
    found = []
    for fusion, attributes in ((1, {}), (2, {}), (1, GPT_OSS), (2, GPT_OSS)):
        moe = _moe(2, **attributes)
        moe.graph[0].attributes["swiglu_fusion"] = ir.AttrInt64("swiglu_fusion", fusion)
        lower(moe, QNN)
        found.append(ort.run(moe, _given())["y"])
    for i, one in enumerate(found):
        for other in found[:i]:
            assert ort.worst(one, other) > 0.05


# -- D36 -------------------------------------------------------------------------------------

EXPERTS = Toy(bits=4, activation="swiglu", fusion=1, block=32, experts=8, biased=True,
              more=tuple(GPT_OSS.items()))  # fmt: skip


@pytest.mark.parametrize("ep", ["openvino@2025.0.0", "openvino@2026.4.1", "openvino-ep"])
def test_d36_openvino_gets_the_parts_of_gpt_oss_with_packed_weights(ep: str) -> None:
    mixture, given = model(EXPERTS), feeds(EXPERTS)
    before = _weight_bytes(mixture)
    expected = ort.run(mixture, given)["y"]
    report = lower(mixture, target(ep))
    assert not report.stuck
    assert report.ops_before["com.microsoft::QMoE"] == 1
    assert report.ops_after["com.microsoft::QMoE"] == 0
    assert _weight_bytes(mixture) < 1.05 * before
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


def _weight_bytes(mixture: ir.Model) -> int:
    values = mixture.graph.initializers.values()
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def test_d36_experts_that_no_rule_takes_are_named_and_the_exit_is_not_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixture = model(replace(EXPERTS, more=(("use_sparse_mixer", 1),)))
    ir.save(mixture, tmp_path / "model.onnx")
    report = tmp_path / "report.json"
    words = [str(tmp_path / "model.onnx"), "--ep", "openvino", "--parity", "none", "--no-place"]
    assert main([*words, "-o", str(tmp_path / "out"), "--report", str(report)]) == 3
    (stuck,) = json.loads(report.read_text())["graphs"][0]["stuck"]
    assert (stuck["op"], stuck["node"]) == ("com.microsoft::QMoE", "y/QMoE")
    reasons = {tried["rule"]: tried["refused"] for tried in stuck["tried"]}
    assert "use_sparse_mixer=1" in reasons["dense_packed_experts"]
    said = "".join(capsys.readouterr())
    assert "com.microsoft::QMoE 'y/QMoE'" in said
    assert not (tmp_path / "out").exists()


# -- ties of a router ------------------------------------------------------------------------


def _said(mixture: ir.Model, ep: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The notes of the JSON report, each of which is on the terminal too."""
    ir.save(mixture, folder / "model.onnx")
    report = folder / "report.json"
    words = [str(folder / "model.onnx"), "--ep", ep, "--parity", "none", "--no-place"]
    assert main([*words, "-o", str(folder / "out"), "--report", str(report)]) == 0
    notes = json.loads(report.read_text(encoding="utf-8"))["graphs"][0]["notes"]
    shown = " ".join("".join(capsys.readouterr()).split())
    assert all(note in shown for note in notes)
    return "; ".join(notes)


def _router(k: int = 2) -> ir.Model:
    """A router as torch writes it: TopK, and the weights of what it chose."""
    b = Builder()
    logits = b.input("r", F32, (1, 8))
    best, chosen = b.node("TopK", [logits, b.const("k", np.array([k]))], ["best", "chosen"])
    y = b.op("GatherElements", b.op("Softmax", logits, name="p"), chosen, name="y", axis=-1)
    return b.model([(y, F32, (1, k)), (b.op("Neg", best, name="z"), F32, (1, k))])


@pytest.mark.parametrize(("ep", "said"), [("qnn", True), ("openvino", False), ("ort-cpu", False)])
def test_a_topk_that_breaks_ties_otherwise_is_said(
    ep: str, said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = _said(_router(), ep, tmp_path, capsys)
    assert ("TopK x 1: equal values come back with other indices than ONNX says" in notes) is said


@pytest.mark.parametrize("toy", [EXPERTS, Toy(experts=8), Toy(experts=64, k=1, shape=(1, 64))])
def test_the_order_of_equal_logits_is_said_where_a_router_is_written_out(
    toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = _said(model(toy), "qnn", tmp_path, capsys)
    assert "of equal logits the expert of the larger index comes first" in notes
