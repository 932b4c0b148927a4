"""A small graph typed out, from floats to quantized activations; the oracle is ORT CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from capabilities import Target, Verdict, target
from rewriter.activations import Calibration, QuantizedActivations, quantize_activations
from rewriter.errors import BadInput
from rewriter.facts import facts_of
from rewriter.nodes import constant
from rewriter.shapes import infer_model
from tests import ort
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
NBITS = "com.microsoft::MatMulNBits"
K, N, ROWS = 64, 32, 4


def layer(
    *, bits: int = 4, points: int | None = None, scales: str = "blocks", opset: int = 24
) -> ir.Model:
    """Y = softmax(norm(x)·W + x'), with W in blocks of 32."""
    b, rng = Builder(), np.random.default_rng(0)
    x = b.input("x", F32, (1, ROWS, K))
    norm = b.op("RMSNormalization", x, b.const("gain", _ones(rng, K)), name="norm", axis=-1)
    codes = rng.integers(0, 256, (N, K // 32, 32 * bits // 8)).astype(np.uint8)
    step = rng.uniform(0.02, 0.08, (N, K // 32)).astype(np.float32)
    if scales != "blocks":
        step[:] = step[:, :1] * (-1 if scales == "negative" else 1)
    given = [b.const("codes", codes), b.const("scales", step * np.float32(16 / (1 << bits)))]
    if points is not None:
        packed = points | points << 4 if bits == 4 else points
        given.append(b.const("points", np.full((N, K // 32 * bits // 8), packed, np.uint8)))
    attributes = {"K": K, "N": N, "bits": bits, "block_size": 32}
    product = b.op(NBITS, norm, *given, name="product", **attributes)
    half = b.op("Slice", x, *(b.const(f"s{i}", np.array([v])) for i, v in enumerate((0, N, 2))),
                name="half")  # fmt: skip
    total = b.op("Add", product, half, name="total")
    y = b.op("Softmax", total, name="y", axis=-1)
    model = b.model([(y, F32, (1, ROWS, N)), (total, F32, (1, ROWS, N))])
    model.opset_imports[""] = opset
    infer_model(model)
    return model


def _ones(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, size).astype(np.float32)


def feeds(count: int = 3) -> tuple[ort.Arrays, ...]:
    rng = np.random.default_rng(1)
    return tuple({"x": rng.uniform(-2, 2, (1, ROWS, K)).astype(np.float32)} for _ in range(count))


def quantized(model: ir.Model, folder: Path, ep: Target, bits: int = 16) -> QuantizedActivations:
    file = folder / "floats.onnx"
    ir.save(model, file)
    return quantize_activations(model, file, ep, bits, Calibration("given", feeds=feeds()))


def legal_everywhere(model: ir.Model, ep: Target) -> bool:
    found = [ep.judge(facts_of(node, model.opset_imports, ep)) for node in model.graph]
    return {one.verdict for one in found} == {Verdict.LEGAL}


def test_every_unit_stands_between_q_and_dq_and_computes_the_same(tmp_path: Path) -> None:
    model, ep = layer(), target("qnn", "2.7.0")
    before = [ort.run(model, feed) for feed in feeds()]
    interface = [str(value) for value in (*model.graph.inputs, *model.graph.outputs)]
    made = quantized(model, tmp_path, ep)
    assert made.units == {16: 5}
    assert made.weights == {"int4 in blocks of 32": 1}
    assert (made.kept, made.floats, made.mask_value) == ([], {}, None)
    assert [str(value) for value in (*model.graph.inputs, *model.graph.outputs)] == interface
    assert legal_everywhere(model, ep)
    ops = Counter(node.op_type for node in model.graph)
    assert (ops["MatMul"], ops["MatMulNBits"], ops["QuantizeLinear"]) == (1, 0, 6)
    for feed, expected in zip(feeds(), before, strict=True):
        found = ort.run(model, feed)
        # five roundings of 2^-16 of their ranges each, the largest being of a sum up to 8
        assert np.abs(found["total"] - expected["total"]).max() < 5e-3
        assert 0 < np.abs(found["y"] - expected["y"]).max() < 1e-3


def test_the_weight_is_the_same_to_the_bit(tmp_path: Path) -> None:
    model = layer(bits=8, points=128)
    nbits = next(node for node in model.graph if node.op_type == "MatMulNBits")
    codes, scales = (constant(nbits.inputs[at]) for at in (1, 2))
    assert codes is not None
    assert scales is not None
    rows = codes.numpy().astype(np.float32).reshape(N, K // 32, 32) - 128
    expected = (rows * scales.numpy()[..., None]).reshape(N, K).T
    made = quantized(model, tmp_path, target("qnn", "2.7.0"))
    assert made.weights == {"int8 in blocks of 32": 1}
    weight = next(
        node for node in model.graph
        if (x := node.inputs[0]) is not None and x.dtype == ir.DataType.INT8
    )  # fmt: skip
    stored = [constant(value) for value in weight.inputs]
    codes_found, scale, zero = (one.numpy() for one in stored if one is not None)
    assert zero.dtype == np.int8
    assert not zero.any()
    found = codes_found.astype(np.float32) * np.repeat(scale, 32, axis=0)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "version", "why"),
    [
        ({"points": 7}, "2.7.0", "its zero points are not the middle code"),
        ({}, "2.3.0", "the scale of the first block is used for every block"),
        ({"bits": 2}, "2.7.0", "codes of 2 bits have no form that is exact and as small"),
    ],
)
def test_a_weight_without_a_legal_exact_form_keeps_its_own(
    given: dict[str, int], version: str, why: str, tmp_path: Path
) -> None:
    model, ep = layer(**given), target("qnn", version)  # type: ignore[arg-type]  # loosely typed in tests
    before = ort.run(model, feeds()[0])["total"]
    made = quantized(model, tmp_path, ep)
    assert [kept.node for kept in made.kept] == ["product/MatMulNBits"]
    assert why in made.kept[0].why
    assert made.weights == {}
    assert legal_everywhere(model, ep)
    assert np.abs(ort.run(model, feeds()[0])["total"] - before).max() < 5e-3


def test_one_scale_per_column_is_found_and_takes_8_bits(tmp_path: Path) -> None:
    model, ep = layer(scales="columns"), target("qnn", "2.7.0")
    made = quantized(model, tmp_path, ep, 8)
    assert made.weights == {"int4 per channel": 1}
    # the norm, the sum of two activations and the softmax keep 16 bits
    assert made.units == {8: 1, 16: 4}
    assert legal_everywhere(model, ep)


def test_blocks_have_16_bits_beside_8(tmp_path: Path) -> None:
    model, ep = layer(), target("qnn", "2.7.0")
    made = quantized(model, tmp_path, ep, 8)
    assert made.weights == {"int4 in blocks of 32": 1}
    assert made.units == {16: 5}
    assert legal_everywhere(model, ep)


def test_negative_scales_of_columns_stay_in_blocks(tmp_path: Path) -> None:
    """HTP takes a step to be positive, where one is shared by a whole column."""
    made = quantized(layer(scales="negative"), tmp_path, target("qnn", "2.7.0"))
    assert made.weights == {"int4 in blocks of 32": 1}


def test_a_target_whose_table_speaks_of_no_units_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no row of openvino@2026\.4\.1 that speaks of quantized"):
        quantized(layer(), tmp_path, target("openvino", "2026.4.1"))


def test_an_opset_without_these_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="opset 20, and activations of 16 bits need 21"):
        quantized(layer(opset=20), tmp_path, target("qnn", "2.7.0"))
