"""QMoE lowered, against ONNX Runtime's kernel, and a formula where that rounds or refuses.

Its kernel rounds activations to 8 bits for 8-bit blocks unless ``ORT_QMOE_CPU_QNBIT_GEMM`` is 0,
and looks 2-bit blocks of 32 and more up in tables; 2 bits per row or in blocks of 16 are exact.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, target
from rewriter.lowering import Stuck, lower
from rewriter.nodes import op_of
from tests import htp, ort
from tests.experts import Toy, feeds, formula, model

STANDARD, QNN = target("onnx-standard"), target("qnn", "2.7.0")
NORMAL = (("normalize_routing_weights", 1),)
GPT_OSS = (("activation_alpha", 1.702), ("activation_beta", 1.0), ("swiglu_limit", 0.75))
SWIGLU = Toy(bits=4, activation="swiglu", fusion=1)
WIDE = replace(SWIGLU, experts=8, inner=8192, shape=(1, 1, 32))

ORT_RUNS = [
    *(
        replace(SWIGLU, bits=bits, block=block, points=points, biased=points)
        for bits, block in ((2, 0), (2, 16), (4, 0), (4, 16), (4, 32), (8, 0), (8, 16), (8, 32))
        for points in (False, True)
    ),
    *(Toy(bits=4, activation=name, biased=True) for name in ("relu", "gelu", "silu", "identity")),
    replace(SWIGLU, more=GPT_OSS, biased=True, points=True, shape=(7, 64)),
    replace(SWIGLU, more=GPT_OSS, k=4, experts=32, shape=(1, 1, 64)),
    replace(SWIGLU, shape=(2, 3, 64), k=1, inner=96, block=32, points=True),
    replace(SWIGLU, k=4),
    replace(SWIGLU, ties=True, k=3, experts=8),
    replace(SWIGLU, ties=True, k=1, experts=16, more=NORMAL),
    replace(SWIGLU, mixing=True, k=3),
    replace(SWIGLU, mixing=True, k=2, more=NORMAL),
    replace(SWIGLU, shape=(1, 1, 1024), inner=512, block=512, points=True, experts=2, k=1),
    replace(SWIGLU, mixing=True, k=3, more=NORMAL, ties=True),
    replace(SWIGLU, mixing=True, k=4),
]
SCHEMA_ALONE = [
    replace(SWIGLU, bits=2, block=32, points=True),
    replace(SWIGLU, bits2=8, points=True, block=16),
    replace(SWIGLU, bits=8, bits2=2),
    replace(SWIGLU, fusion=2, more=GPT_OSS, points=True, biased=True),
    replace(SWIGLU, fusion=0, more=GPT_OSS, points=True, biased=True, block=32),
    replace(SWIGLU, activation="geglu", block=32, biased=True),
    replace(SWIGLU, activation="geglu", fusion=2, points=True),
    Toy(bits=8, activation="relu2"),
    replace(SWIGLU, more=(*GPT_OSS, ("swiglu_limit_after_activation", 1))),
    replace(SWIGLU, more=(("weights_prepacked", 0), ("quant_type", "int"))),
]


@pytest.fixture(autouse=True)
def exact_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of 8-bit blocks that does not round activations."""
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "0")


@pytest.mark.parametrize("ep", [STANDARD, QNN], ids=["standard", "qnn"])
@pytest.mark.parametrize("toy", ORT_RUNS, ids=str)
def test_equals_the_kernel(toy: Toy, ep: Target) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = ort.run(mixture, given)["y"]
    assert ort.worst(formula(toy, mixture, given), expected) < 2e-6
    lower(mixture, ep)
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


@pytest.mark.parametrize("toy", SCHEMA_ALONE, ids=str)
def test_equals_the_formula(toy: Toy) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    lower(mixture, QNN)
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


def test_codes_stay_packed_and_are_not_doubled() -> None:
    toy = replace(SWIGLU, block=32, points=True, experts=8)
    mixture = model(toy)
    before = sum(tensor.nbytes for tensor in _stored(mixture))
    lower(mixture, QNN)
    after = _stored(mixture)
    packed = [t for t in after if t.dtype == ir.DataType.UINT8 and t.size > 999]
    assert [isinstance(t, ir.LazyTensor) for t in packed] == [True, True]
    assert sum(tensor.nbytes for tensor in after) < before * 1.05


def _stored(mixture: ir.Model) -> list[ir.TensorProtocol]:
    values = mixture.graph.initializers.values()
    return [value.const_value for value in values if value.const_value is not None]


def test_all_experts_share_two_products() -> None:
    mixture = model(replace(SWIGLU, experts=32))
    lower(mixture, QNN)
    ops = [op_of(node) for node in mixture.graph]
    assert ops.count("com.microsoft::MatMulNBits") == 2
    assert len(ops) < 25


def test_wide_experts_become_narrower_products() -> None:
    """Eight experts of 8192 channels: 65536, which HTP takes in no version."""
    toy = replace(WIDE, points=True, biased=True, block=16, more=GPT_OSS)
    mixture, given = model(toy), feeds(toy)
    expected = formula(toy, mixture, given)
    report = lower(mixture, QNN)
    ops = [op_of(node) for node in mixture.graph]
    assert ops.count("com.microsoft::MatMulNBits") == 1 + 4
    assert report.sites()["sum_of_matmul_nbits", "com.microsoft::MatMulNBits"] == 1
    assert ort.worst(expected, ort.run(mixture, given)["y"]) < 2e-6


@pytest.mark.parametrize("block", [0, 32])
def test_half_precision(block: int) -> None:
    toy = replace(SWIGLU, dtype=ir.DataType.FLOAT16, biased=True, block=block, more=GPT_OSS)
    mixture, given = model(toy), feeds(toy)
    exact, kernel = formula(toy, mixture, given), ort.run(mixture, given)["y"]
    lower(mixture, QNN)
    found = ort.run(mixture, given)["y"]
    assert found.dtype == kernel.dtype == np.float16
    assert ort.worst(exact, kernel.astype(np.float64)) < 5e-3
    assert ort.worst(exact, found.astype(np.float64)) < 5e-3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"more": (("use_sparse_mixer", 1),)}, "use_sparse_mixer=1 routes differently"),
        ({"more": (("weights_prepacked", 1),)}, "weights_prepacked=1 is a layout of the provider"),
        ({"more": (("quant_type", "nvfp4"),)}, "quant_type=nvfp4 is no integer format"),
        ({"more": (("fc1_expert_weight_bits", 3),)}, "fc1 has 3-bit codes"),
        ({"more": (("fc1_expert_weight_bits", 8),)}, "fc1_experts_weights has shape"),
        ({"more": (("block_size", 16),)}, "fc1_scales has shape"),
        ({"fusion": 3}, "swiglu_fusion=3 is not known"),
        ({"activation": "silu"}, "swiglu_fusion=1 is not defined for silu"),
        ({"activation": "geglu", "fusion": 0}, "fc3 beside activation_type=geglu"),
        ({"k": 5}, "k=5 of 4 experts"),
        ({"inner": 24}, "fc2 has blocks of 8; MatMulNBits wants 16"),
    ],
)
def test_refuses(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Stuck, match=reason):
        lower(model(replace(SWIGLU, **changes)), QNN)


@pytest.mark.parametrize("given", ["fc1_global_scale", "fc2_act_scale", "fc1_act_block_scale"])
def test_refuses_scales_of_other_formats(given: str) -> None:
    mixture = model(SWIGLU)
    (node,) = mixture.graph
    names = [*("fc1_global_scale", "fc2_global_scale", "fc1_act_scale", "fc2_act_scale"),
             "fc1_act_block_scale"]  # fmt: skip
    at = 15 + names.index(given)
    node.resize_inputs(at + 1)
    node.replace_input_with(at, mixture.graph.initializers["fc1_s"])
    with pytest.raises(Stuck, match=given):
        lower(mixture, QNN)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fc1_w", "fc1_experts_weights is not a constant"),
        ("fc2_s", "fc2_scales is not a constant"),
        ("fc2_z", "fc2_zero_points is not a constant"),
    ],
)
def test_refuses_weights_that_are_not_stored(name: str, reason: str) -> None:
    mixture = model(replace(SWIGLU, points=True))
    weight = mixture.graph.initializers.pop(name)
    mixture.graph.inputs.append(weight)
    weight.const_value = None
    with pytest.raises(Stuck, match=reason):
        lower(mixture, QNN)


@htp.needs_qnn
@pytest.mark.parametrize(
    "toy",
    [
        replace(SWIGLU, biased=True, more=GPT_OSS, points=True, block=32, experts=8, k=4),
        replace(SWIGLU, bits=8, block=16, experts=32, k=4, shape=(1, 1, 64)),
        replace(SWIGLU, bits=2, points=True, activation="geglu"),
        replace(SWIGLU, ties=True, k=3, experts=8, shape=(6, 64)),
        replace(SWIGLU, mixing=True, k=3, more=NORMAL),
        replace(WIDE, points=True, biased=True),
    ],
    ids=str,
)
def test_placed_whole_on_htp(toy: Toy, tmp_path: Path) -> None:
    mixture, given = model(toy), feeds(toy)
    expected = {"y": formula(toy, mixture, given)}
    lower(mixture, QNN)
    htp.check(mixture, given, expected, tmp_path)
