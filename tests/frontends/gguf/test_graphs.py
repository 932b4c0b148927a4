"""The arrays of a weight in the ops that read them: ONNX Runtime's results on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from gguf.constants import GGMLQuantizationType

from frontends.decoder.weights import Quantized
from frontends.gguf.file import GgufFile
from frontends.gguf.weights import GgufWeights
from tests import ort
from tests.frontends.gguf.files import Bytes, T, codes_of, random_blocks, values_of, write
from tests.graphs import Builder

F32 = ir.DataType.FLOAT
ROWS, WIDTH = 24, 512
KINDS = (T.Q2_K, T.Q3_K, T.Q4_0, T.Q4_1, T.Q4_K, T.Q5_K, T.Q6_K, T.Q8_0, T.IQ4_XS, T.NVFP4)
"""2, 4 and 8 bits, blocks of 16 and 32, with minimums and without."""


def blocks_of(kind: GGMLQuantizationType) -> Bytes:
    """Ordinary ones; the byte scales of NVFP4 without those that mean thousands."""
    raw = random_blocks(kind, (ROWS, WIDTH), extremes=False)
    if kind == T.NVFP4:
        raw.reshape(ROWS, -1, 36)[..., :4] &= 0x3F
    return raw


def weight_of(path: Path, kind: GGMLQuantizationType) -> Quantized:
    """A random matrix of a type."""
    file = GgufFile.open(write(path, {"w": (kind, blocks_of(kind))}))
    weight = GgufWeights(file)["w"]
    assert isinstance(weight, Quantized)
    return weight


def zero_points(b: Builder, weight: Quantized) -> ir.Value | None:
    """None where the op assumes the right one."""
    if weight.zero:
        return None
    width = WIDTH // weight.block * weight.bits // 8
    return b.const("zero", np.zeros((ROWS, width), np.uint8))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_linear_layer_is_exact_but_for_rounding(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    weight = weight_of(tmp_path / "w.gguf", kind)
    b = Builder()
    x = b.input("x", F32, (5, WIDTH))
    y = b.op(
        "com.microsoft::MatMulNBits",
        x,
        b.const("codes", weight.codes),
        b.const("scales", weight.scales),
        zero_points(b, weight),
        name="y",
        N=ROWS,
        K=WIDTH,
        bits=weight.bits,
        block_size=weight.block,
    )
    array = np.random.default_rng(1).standard_normal((5, WIDTH), np.float32)
    found = ort.run(b.model([(y, F32, (5, ROWS))]), {"x": array})["y"]
    centred = codes_of(weight).astype(np.float64) - weight.zero
    matrix = (weight.scales.numpy()[..., None] * centred).reshape(ROWS, WIDTH)
    exact = array.astype(np.float64) @ matrix.T
    # ORT adds partial sums in float32: each of K products may be rounded once on its way.
    bound = 8 * np.finfo(np.float32).eps * (np.abs(array).astype(np.float64) @ np.abs(matrix).T)
    assert (np.abs(found - exact) <= bound).all()
    assert np.abs(exact).min() > 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_embedding_reads_the_same_codes(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    weight = weight_of(tmp_path / "w.gguf", kind)
    b = Builder()
    ids = b.input("ids", ir.DataType.INT64, (7,))
    flat = weight.codes.numpy().reshape(ROWS, -1)
    y = b.op(
        "com.microsoft::GatherBlockQuantized",
        b.const("codes", flat),
        ids,
        b.const("scales", weight.scales),
        zero_points(b, weight),
        name="y",
        gather_axis=0,
        quantize_axis=1,
        bits=weight.bits,
        block_size=weight.block,
    )
    wanted = np.array([0, 3, 3, 23, 11, 5, 1])
    found = ort.run(b.model([(y, F32, (7, WIDTH))]), {"ids": wanted})["y"]
    if weight.minimums is not None:
        least = weight.minimums.numpy()[wanted]
        found = (found.reshape(7, -1, weight.block) - least[..., None]).reshape(7, WIDTH)
    assert found.tobytes() == values_of(weight)[wanted].tobytes()
