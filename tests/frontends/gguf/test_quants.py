"""Every block format: our integers, scales and minimums are the very numbers of the file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType

from frontends.decoder.weights import Float, Quantized, Weight
from frontends.gguf.file import GgufFile
from frontends.gguf.quants import FORMS
from frontends.gguf.weights import GgufWeights
from rewriter.streamed import StreamedTensor
from tests.frontends.gguf.files import (
    FLOATED,
    HALVES,
    Bytes,
    T,
    dequantized,
    random_blocks,
    values_of,
    write,
)

F32 = ir.DataType.FLOAT
BITS = {
    T.Q2_K: (2, 16, 0),
    T.Q3_K: (4, 16, 8),
    T.Q4_0: (4, 32, 8),
    T.Q4_1: (4, 32, 0),
    T.Q4_K: (4, 32, 0),
    T.Q5_0: (8, 32, 128),
    T.Q5_1: (8, 32, 0),
    T.Q5_K: (8, 32, 0),
    T.Q6_K: (8, 16, 128),
    T.Q8_0: (8, 32, 128),
    T.IQ4_NL: (8, 32, 128),
    T.IQ4_XS: (8, 32, 128),
    T.MXFP4: (8, 32, 128),
    T.NVFP4: (8, 16, 128),
}
MINIMUMS = {T.Q2_K, T.Q4_1, T.Q4_K, T.Q5_1, T.Q5_K}


def weight_of(path: Path, kind: GGMLQuantizationType, raw: Bytes) -> Weight:
    """A file's only weight."""
    return GgufWeights(GgufFile.open(write(path, {"w": (kind, raw)})))["w"]


def test_every_type_is_tested() -> None:
    assert set(HALVES) == set(FORMS) == set(BITS)


@pytest.mark.parametrize("kind", HALVES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(37, 512), (3, 20, 256)], ids=["matrix", "experts"])
def test_integer_forms_are_exact(
    tmp_path: Path, kind: GGMLQuantizationType, shape: tuple[int, ...]
) -> None:
    raw = random_blocks(kind, shape, seed=len(shape))
    weight = weight_of(tmp_path / "w.gguf", kind, raw)
    assert isinstance(weight, Quantized)
    assert (weight.bits, weight.block, weight.zero) == BITS[kind]
    assert (weight.minimums is not None) == (kind in MINIMUMS)
    assert weight.shape == shape
    blocks = shape[-1] // weight.block
    packed = weight.block * weight.bits // 8
    assert weight.codes.shape.numpy() == (*shape[:-1], blocks, packed)
    assert weight.codes.dtype == ir.DataType.UINT8
    assert weight.scales.shape.numpy() == (*shape[:-1], blocks)
    reference = dequantized(kind, raw)
    assert np.isfinite(reference).mean() > 0.95
    assert len(np.unique(reference)) > 400
    assert values_of(weight).tobytes() == reference.tobytes()


@pytest.mark.parametrize("kind", FLOATED, ids=lambda kind: kind.name)
def test_other_types_are_floats(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    raw = random_blocks(kind, (6, 512))
    weight = weight_of(tmp_path / "w.gguf", kind, raw)
    assert isinstance(weight, Float)
    assert weight.tensor.dtype == F32
    assert weight.tensor.numpy().tobytes() == dequantized(kind, raw).tobytes()


@pytest.mark.parametrize("kind", [T.TQ1_0, T.TQ2_0], ids=lambda kind: kind.name)
def test_ternary_types_are_exact_in_float16(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    raw = quants.quantize(np.random.default_rng(0).standard_normal((6, 512), np.float32), kind)
    weight = weight_of(tmp_path / "w.gguf", kind, raw)
    assert isinstance(weight, Float)
    assert weight.tensor.dtype == ir.DataType.FLOAT16
    assert len(np.unique(weight.tensor.numpy())) > 10
    assert values_of(weight).tobytes() == dequantized(kind, raw).tobytes()


@pytest.mark.parametrize("kind", [T.F32, T.F16, T.BF16], ids=lambda kind: kind.name)
def test_floats_stay_as_they_are(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    numbers = np.random.default_rng(0).standard_normal((5, 64), np.float32)
    raw = quants.quantize(numbers, kind)
    weight = weight_of(tmp_path / "w.gguf", kind, raw)
    assert isinstance(weight, Float)
    assert weight.shape == (5, 64)
    assert values_of(weight).tobytes() == dequantized(kind, raw).tobytes()
    file = io.BytesIO()
    assert isinstance(weight.tensor, StreamedTensor)
    weight.tensor.tofile(file)
    assert file.getvalue() == raw.tobytes()


@pytest.mark.parametrize("kind", HALVES, ids=lambda kind: kind.name)
def test_long_tensors_are_whole(
    tmp_path: Path, kind: GGMLQuantizationType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converted in many chunks and pieces, of which the last is shorter."""
    monkeypatch.setattr("frontends.gguf.quants._CHUNK", 1000)
    monkeypatch.setattr("rewriter.streamed._PIECE_BYTES", 3000)
    raw = random_blocks(kind, (101, 256))
    weight = weight_of(tmp_path / "w.gguf", kind, raw)
    assert values_of(weight).tobytes() == dequantized(kind, raw).tobytes()
