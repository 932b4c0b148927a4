"""MoE lowered, against ONNX Runtime's kernel, and a formula where only CUDA has a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort
from tests.experts import Toy, feeds, formula, model

STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")
SWIGLU = Toy(activation="swiglu", fusion=1)
NORMAL = (("normalize_routing_weights", 1),)
LIMITED = (("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 0.75))

ORT_RUNS = [
    *(Toy(activation=name, biased=True) for name in ("relu", "gelu", "silu", "identity")),
    Toy(k=1, experts=32, shape=(1, 1, 64)),
    Toy(k=4, experts=16, more=NORMAL),
    Toy(k=4, experts=4),
    Toy(k=4, experts=4, more=NORMAL),
    Toy(shape=(7, 64)),
    Toy(shape=(2, 3, 64), biased=True, more=NORMAL),
    Toy(ties=True, k=3, experts=8),
    Toy(ties=True, k=1, experts=8, more=NORMAL),
    replace(SWIGLU, biased=True),
    replace(SWIGLU, more=(*LIMITED, *NORMAL), biased=True),
    replace(SWIGLU, more=(("activation_alpha", 0.5),)),
    replace(SWIGLU, more=(("activation_beta", -1.0),)),
]
SCHEMA_ALONE = [
    Toy(activation="geglu", fusion=1, biased=True, more=NORMAL),
    Toy(activation="geglu", fusion=2, more=LIMITED),
    Toy(activation="relu2", biased=True),
    Toy(activation="swiglu", fusion=2, more=LIMITED),
    Toy(activation="swiglu", fusion=0, biased=True, more=LIMITED),
    replace(SWIGLU, more=(*LIMITED, ("swiglu_limit_after_activation", 1))),
]


@pytest.mark.parametrize("ep", [STANDARD, QNN], ids=["standard", "qnn"])
@pytest.mark.parametrize("toy", ORT_RUNS, ids=str)
def test_equals_the_kernel(toy: Toy, ep: Target) -> None:
    before, given = model(toy), feeds(toy)
    expected = ort.run(before, given)["y"]
    assert ort.worst(formula(toy, before, given), expected) < 2e-6
    lower(before, ep)
    assert ort.worst(expected, ort.run(before, given)["y"]) < 2e-6


@pytest.mark.parametrize("toy", SCHEMA_ALONE, ids=str)
def test_equals_the_formula(toy: Toy) -> None:
    after, given = model(toy), feeds(toy)
    expected = formula(toy, after, given)
    lower(after, QNN)
    assert ort.worst(expected, ort.run(after, given)["y"]) < 2e-6


def test_wide_experts_become_narrower_products() -> None:
    """Eight experts of 4096 channels: 32768, which HTP did not take before 2.5."""
    toy = replace(SWIGLU, experts=8, inner=4096, shape=(1, 2, 16), biased=True, more=LIMITED)
    before, given = model(toy), feeds(toy)
    expected = formula(toy, before, given)
    report = lower(before, target("qnn", "2.4.0"))
    assert report.sites()["sum_of_matmuls", "MatMul"] == 1
    assert sum(node.op_type == "MatMul" for node in before.graph) == 1 + 2 + 1
    assert ort.worst(expected, ort.run(before, given)["y"]) < 2e-6


def test_all_experts_are_a_handful_of_nodes() -> None:
    mixture = model(replace(SWIGLU, experts=32))
    lower(mixture, QNN)
    ops = [op_of(node) for node in mixture.graph]
    assert ops.count("MatMul") == 2
    assert len(ops) < 25


def test_half_precision() -> None:
    toy = replace(SWIGLU, dtype=ir.DataType.FLOAT16, biased=True, more=LIMITED)
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    lower(mixture, STANDARD)
    found = ort.run(mixture, given)["y"]
    assert found.dtype == np.float16
    assert ort.worst(expected, found.astype(np.float64)) < 5e-3


@pytest.mark.parametrize(
    ("toy", "reason"),
    [
        (Toy(more=(("use_sparse_mixer", 1),)), "use_sparse_mixer=1 routes differently"),
        (Toy(activation="tanh"), "activation_type=tanh is not known"),
        (Toy(activation="silu", fusion=1), "swiglu_fusion=1 is not defined for silu"),
        (Toy(more=(("swiglu_limit_after_activation", 1),)), "is for swiglu alone"),
        (Toy(activation="geglu", fusion=0), "fc3 beside activation_type=geglu is not defined"),
        (replace(SWIGLU, fusion=3), "swiglu_fusion=3 is not known"),
        (Toy(k=5), "k=5 of 4 experts"),
        (Toy(shape=(1, 5, "size")), "the last dim of input is not fixed"),  # type: ignore[arg-type]  # a free dim on purpose
    ],
)
def test_refuses(toy: Toy, reason: str) -> None:
    wrong = replace(toy, shape=(1, 5, 64))
    mixture = model(wrong)
    mixture.graph.inputs[0].shape = ir.Shape(toy.shape)
    with pytest.raises(Stuck, match=reason):
        lower(mixture, STANDARD)


@pytest.mark.parametrize("ep", ["ort-cpu", "onnx-standard", "openvino"])
@pytest.mark.parametrize(
    ("toy", "dims"),
    [
        (Toy(activation="geglu", fusion=1, shape=(1, 5, 64), biased=True), (1, "seq", 64)),
        (Toy(activation="geglu", fusion=1, shape=(2, 3, 64)), ("batch", 3, 64)),
        (Toy(activation="geglu", fusion=1, shape=(2, 3, 64)), ("batch", "seq", 64)),
        (Toy(activation="relu2", shape=(7, 64), biased=True), ("tokens", 64)),
        (replace(SWIGLU, fusion=2, bits=4, block=32, shape=(2, 3, 64)), ("batch", "seq", 64)),
        (replace(SWIGLU, fusion=0, bits=8, points=True, shape=(1, 4, 64)), (1, "seq", 64)),
    ],
    ids=str,
)
def test_any_number_of_tokens(toy: Toy, dims: tuple[int | str, ...], ep: str) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    x, logits, *_ = mixture.graph.inputs
    x.shape, logits.shape = ir.Shape(dims), ir.Shape(["tokens", toy.experts])
    mixture.graph.outputs[0].shape = ir.Shape(dims)
    lower(mixture, target(ep))
    assert mixture.graph.outputs[0].shape == ir.Shape(dims)
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


def test_refuses_weights_that_are_not_stored() -> None:
    mixture = model(Toy())
    weight = mixture.graph.initializers.pop("fc1_w")
    mixture.graph.inputs.append(weight)
    weight.const_value = None
    with pytest.raises(Stuck, match="fc1_experts_weights is not a constant"):
        lower(mixture, STANDARD)


@htp.needs_qnn
@pytest.mark.parametrize(
    "toy",
    [
        replace(SWIGLU, biased=True, more=(*LIMITED, *NORMAL)),
        Toy(activation="geglu", fusion=1, k=3, experts=8, shape=(1, 1, 64)),
        Toy(activation="gelu", experts=32, k=4),
        Toy(ties=True, k=3, experts=8, biased=True),
    ],
    ids=str,
)
def test_placed_whole_on_htp(toy: Toy, tmp_path: Path) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = {"y": formula(toy, mixture, given)}
    lower(mixture, QNN)
    htp.check(mixture, given, expected, tmp_path)
