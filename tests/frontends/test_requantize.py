"""Smaller weights on request: symmetric integers, their error measured while they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from gguf.constants import GGMLQuantizationType

from frontends.decoder.requantize import Kind, requantized
from frontends.decoder.rows import gathered
from frontends.decoder.weights import Float, Quantized
from frontends.gguf.file import GgufFile
from frontends.gguf.weights import GgufWeights
from tests.frontends.gguf.files import T, codes_of, dequantized, random_blocks, values_of, write

MATRIX = np.random.default_rng(0).standard_normal((40, 256), np.float32)
STEP = {"int4": 1 / 8, "int8": 1 / 128}
"""A code that stands for the largest weight of a block reaches it; the other side falls short by
up to one of these."""


@pytest.mark.parametrize("kind", ["int4", "int8"])
@pytest.mark.parametrize("shape", [(40, 256), (5, 8, 256)], ids=["matrix", "experts"])
def test_floats_become_symmetric_integers(kind: Kind, shape: tuple[int, ...]) -> None:
    values = MATRIX.reshape(shape).copy()
    values[..., :2, :32] = 0
    weight, loss = requantized(Float(ir.tensor(values)), kind)
    assert isinstance(weight, Quantized)
    bits = 4 if kind == "int4" else 8
    assert (weight.bits, weight.block, weight.zero) == (bits, 32, 1 << (bits - 1))
    assert weight.minimums is None
    assert weight.shape == shape
    made = values_of(weight)
    runs, given = made.reshape(-1, 32), values.reshape(-1, 32)
    assert (runs[(given == 0).all(axis=1)] == 0).all()
    most = np.abs(given).max(axis=1, keepdims=True)
    assert (np.abs(runs - given) <= STEP[kind] * most * (1 + 1e-6)).all()
    inner = np.abs(given) < most * (1 - STEP[kind])
    assert (
        np.abs(runs - given)[inner] <= (STEP[kind] / 2 * most * (1 + 1e-5)).repeat(32, 1)[inner]
    ).all()
    assert loss.value == pytest.approx(np.abs(made - values).max() / np.abs(values).max(), rel=1e-6)
    assert 0 < loss.value < STEP[kind]
    codes = codes_of(weight)
    assert len(np.unique(codes)) == 1 << bits


def test_the_largest_weight_of_a_block_is_exact() -> None:
    weight, _ = requantized(Float(ir.tensor(MATRIX)), "int4")
    made, given = values_of(weight).reshape(-1, 32), MATRIX.reshape(-1, 32)
    furthest = np.abs(given).argmax(axis=1)[:, None]
    assert (np.take_along_axis(made, furthest, 1) == np.take_along_axis(given, furthest, 1)).all()


@pytest.mark.parametrize(
    ("kind", "type_", "bits"),
    [
        ("int4", T.Q4_K, 4),
        ("int4", T.Q6_K, 4),
        ("int4", T.Q8_0, 4),
        ("int4", T.Q2_K, 4),
        ("int4", T.IQ2_XXS, 4),
        ("int4", T.F16, 4),
        ("int8", T.Q5_K, 8),
        ("int8", T.BF16, 8),
    ],
)
def test_larger_types_become_smaller(
    tmp_path: Path, kind: Kind, type_: GGMLQuantizationType, bits: int
) -> None:
    if type_ in {T.F16, T.BF16}:
        raw = np.random.default_rng(0).integers(0, 96, (16, 512), np.uint8)
    else:
        raw = random_blocks(type_, (16, 256), extremes=False)
    file = GgufFile.open(write(tmp_path / "m.gguf", {"w": (type_, raw)}))
    weights = GgufWeights(file, kind)
    weight = weights["w"]
    assert isinstance(weight, Quantized)
    assert (weight.bits, weight.block, weight.minimums) == (bits, 32, None)
    reference = dequantized(type_, raw)
    made = values_of(weight)
    error = np.abs(made - reference).max() / np.abs(reference).max()
    (row,) = weights.kinds()
    assert row.error == pytest.approx(error, rel=1e-6)
    assert 0 < row.error <= STEP[kind] * (1 + 1e-6)
    assert row.bytes_out == 16 * (256 * bits // 8 + 8 * 4)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("int4", T.Q4_0),
        ("int4", T.Q3_K),
        ("int8", T.Q8_0),
        ("int8", T.Q6_K),
        ("int8", T.Q4_K),
        ("int8", T.MXFP4),
        ("fp16", T.Q4_K),
        ("fp16", T.F16),
    ],
)
def test_types_that_fit_stay_exact(tmp_path: Path, kind: Kind, type_: GGMLQuantizationType) -> None:
    raw = MATRIX.astype(np.float16) if type_ == T.F16 else random_blocks(type_, (16, 256))
    file = GgufFile.open(write(tmp_path / "m.gguf", {"w": (type_, raw)}))
    weights = GgufWeights(file, kind)
    assert values_of(weights["w"]).tobytes() == dequantized(type_, raw).tobytes()
    assert weights.kinds()[0].error == 0


def test_float16() -> None:
    values = MATRIX.copy()
    values[0, 0] = 1e5
    weight, loss = requantized(Float(ir.tensor(values)), "fp16")
    assert isinstance(weight, Float)
    assert weight.tensor.dtype == ir.DataType.FLOAT16
    made = weight.tensor.numpy()
    assert made[0, 0] == 65504
    assert (made.reshape(-1)[1:] == values.reshape(-1)[1:].astype(np.float16)).all()
    assert loss.value == pytest.approx((1e5 - 65504) / 1e5)


def test_vectors_and_routers_stay(tmp_path: Path) -> None:
    tensors = {
        "norm": (T.F32, MATRIX[0]),
        "blk.0.ffn_gate_inp.weight": (T.F32, MATRIX),
        "odd": (T.F32, MATRIX[:, :40]),
        "half": (T.F32, MATRIX[:, :48]),
    }
    weights = GgufWeights(GgufFile.open(write(tmp_path / "m.gguf", tensors)), "int4")
    for name in ("norm", "blk.0.ffn_gate_inp.weight", "odd"):
        assert values_of(weights[name]).tobytes() == tensors[name][1].tobytes()
    half = weights["half"]
    assert isinstance(half, Quantized)
    assert half.block == 16


def test_nothing_finite_is_no_error_of_zero() -> None:
    values = MATRIX.copy()
    values[3, 3] = np.nan
    weight, loss = requantized(Float(ir.tensor(values)), "int8")
    assert isinstance(weight, Quantized)
    with np.errstate(invalid="ignore"):
        weight.codes.numpy()
    assert np.isnan(loss.value)


def test_rows_of_smaller_weights() -> None:
    weight, _ = requantized(Float(ir.tensor(MATRIX)), "int4")
    order = np.random.default_rng(0).permutation(40)
    assert values_of(gathered(weight, order)).tobytes() == values_of(weight)[order].tobytes()
