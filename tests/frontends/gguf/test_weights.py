"""Weights by name, their rows in other orders, what was not asked for, and the memory they take."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from gguf.constants import GGMLQuantizationType

from frontends.decoder.rows import RowTensor, gathered, rows
from frontends.decoder.weights import Float, Quantized, Weights
from frontends.gguf.file import GgufFile
from frontends.gguf.weights import GgufWeights, unpermuted
from rewriter.errors import BadInput
from rewriter.source import WeightKind
from rewriter.streamed import StreamedTensor
from tests.frontends.gguf.files import T, dequantized, random_blocks, values_of, write

MATRIX = np.random.default_rng(0).standard_normal((12, 256), np.float32)


def permuted(weights: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """What llama.cpp's converter does to the rows of Q and K."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def test_weights_by_name(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.gguf",
        {
            "a": (T.Q4_K, random_blocks(T.Q4_K, (8, 256))),
            "b": (T.F32, MATRIX[0]),
            "c": (T.Q4_K, random_blocks(T.Q4_K, (4, 256))),
            "d": (T.Q8_0, random_blocks(T.Q8_0, (4, 64))),
            "e": (T.IQ2_XS, random_blocks(T.IQ2_XS, (4, 256))),
            "f": (T.F32, MATRIX),
        },
    )
    weights = GgufWeights(GgufFile.open(path))
    protocol: Weights = weights
    assert "a" in protocol
    assert "x" not in protocol
    assert weights.unused() == ["a", "b", "c", "d", "e", "f"]
    assert weights.kinds() == []
    assert weights["a"] is weights["a"]
    assert [weights[name].shape for name in "bde"] == [(256,), (4, 64), (4, 256)]
    assert weights.unused() == ["c", "f"]
    assert weights.shape("c") == (4, 256)
    assert weights.unused() == ["c", "f"]
    assert weights["c"].shape == (4, 256)
    assert weights.kinds() == [
        WeightKind("F32", "float", 1, 1024, 1024, 0.0),
        WeightKind("IQ2_XS", "float (it has no integer form)", 1, 4 * 74, 4096, 0.0),
        WeightKind(
            "Q4_K", "4 bits, blocks of 32 with scales and minimums", 2, 12 * 144, 12 * 192, 0.0
        ),
        WeightKind("Q8_0", "8 bits, blocks of 32 with scales", 1, 8 * 34, 8 * 36, 0.0),
    ]


def test_a_weight_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {"a": (T.F32, MATRIX)})
    with pytest.raises(BadInput, match=r"m\.gguf: has no weight 'blk\.0\.attn_q\.weight', which"):
        GgufWeights(GgufFile.open(path))["blk.0.attn_q.weight"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [(T.I32, "tensor 'w' has the type I32"), (T.Q1_0, "tensor 'w' has the type Q1_0")],
)
def test_types_that_are_no_weights(tmp_path: Path, kind: GGMLQuantizationType, words: str) -> None:
    raw = np.zeros((2, 18), np.uint8) if kind == T.Q1_0 else np.zeros((2, 4), np.int32)
    path = write(tmp_path / "m.gguf", {"w": (kind, raw), "v": (T.F32, MATRIX)})
    weights = GgufWeights(GgufFile.open(path))
    assert weights["v"].shape == MATRIX.shape
    with pytest.raises(BadInput, match=words):
        weights["w"]


def test_a_quantized_vector(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {"w": (T.Q8_0, random_blocks(T.Q8_0, (64,)))})
    with pytest.raises(BadInput, match=r"tensor 'w' of shape \[64\] is stored as Q8_0"):
        GgufWeights(GgufFile.open(path))["w"]


# -- rows ------------------------------------------------------------------------------------


def test_the_permutation_of_d50() -> None:
    stored = np.array([0, 3, 1, 4, 2, 5], np.float32)
    assert permuted(stored, 1).tolist() == [0, 4, 3, 2, 1, 5], "the forward form is no inverse"
    weight = unpermuted(Float(ir.tensor(stored)), 1)
    assert isinstance(weight, Float)
    assert weight.tensor.numpy().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 6), (3, 6), (2, 10), (4, 64)])
@pytest.mark.parametrize("kind", [T.F32, T.Q4_K, T.Q6_K], ids=lambda kind: kind.name)
def test_rows_of_queries_come_back(
    tmp_path: Path, kind: GGMLQuantizationType, heads: int, head_dim: int
) -> None:
    shape = (heads * head_dim, 256)
    numbers = np.random.default_rng(0).standard_normal(shape, np.float32)
    raw = numbers if kind == T.F32 else random_blocks(kind, shape)
    stored = permuted(raw, heads)
    assert stored.tobytes() != raw.tobytes()
    bias = np.arange(shape[0], dtype=np.float32)
    path = write(tmp_path / "m.gguf", {"w": (kind, stored), "b": (T.F32, permuted(bias, heads))})
    weights = GgufWeights(GgufFile.open(path))
    weight = unpermuted(weights["w"], heads)
    assert weight.shape == shape
    assert values_of(weight).tobytes() == dequantized(kind, raw).tobytes()
    assert values_of(unpermuted(weights["b"], heads)).tolist() == bias.tolist()


def test_rows_that_heads_cannot_share() -> None:
    with pytest.raises(BadInput, match="has 12 rows, which 5 heads cannot share"):
        unpermuted(Float(ir.tensor(MATRIX)), 5)


@pytest.mark.parametrize(
    "kind", [T.F32, T.BF16, T.Q2_K, T.Q5_K, T.MXFP4, T.IQ3_S], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("shape", [(20, 256), (3, 20, 256)], ids=["matrix", "experts"])
def test_some_rows(
    tmp_path: Path,
    kind: GGMLQuantizationType,
    shape: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a packed projection or of every expert's; and rows of rows."""
    monkeypatch.setattr("rewriter.streamed._PIECE_BYTES", 2000)
    raw: npt.NDArray[Any]
    if kind == T.F32:
        raw = np.random.default_rng(0).standard_normal(shape, np.float32)
    elif kind == T.BF16:
        raw = np.random.default_rng(0).integers(0, 128, (*shape[:-1], 512), np.uint8)
    else:
        raw = random_blocks(kind, shape)
    weight = GgufWeights(GgufFile.open(write(tmp_path / "m.gguf", {"w": (kind, raw)})))["w"]
    whole = dequantized(kind, raw).reshape(shape)
    part = rows(weight, 5, 17)
    assert part.shape == (*shape[:-2], 12, 256)
    assert values_of(part).tobytes() == whole[..., 5:17, :].tobytes()
    turned = gathered(part, np.arange(12)[::-1])
    assert values_of(turned).tobytes() == whole[..., 5:17, :][..., ::-1, :].tobytes()
    for tensor in (turned.tensor,) if isinstance(turned, Float) else (turned.codes, turned.scales):
        assert isinstance(tensor, RowTensor)


def test_rows_of_tensors_in_memory() -> None:
    """Weights of other formats, which are no streams."""
    codes = np.arange(4 * 2 * 16, dtype=np.uint8).reshape(4, 2, 16)
    scales = np.arange(8, dtype=np.float32).reshape(4, 2)
    weight = Quantized((4, 64), 4, 32, 8, ir.tensor(codes), ir.tensor(scales))
    part = rows(weight, 1, 3)
    assert isinstance(part, Quantized)
    assert (part.codes.numpy() == codes[1:3]).all()
    assert (part.scales.numpy() == scales[1:3]).all()
    assert part.minimums is None


# -- memory ----------------------------------------------------------------------------------


class _Sink:
    """A file that forgets."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += memoryview(data).nbytes
        return memoryview(data).nbytes


@pytest.mark.parametrize("kind", [T.F32, T.Q4_K, T.IQ4_XS, T.IQ2_XXS], ids=lambda k: k.name)
@pytest.mark.parametrize("changed", [False, True], ids=["plain", "rows turned"])
def test_memory_is_bounded(tmp_path: Path, kind: GGMLQuantizationType, *, changed: bool) -> None:
    """Writing a tensor of 64 MB and more takes the memory of a piece."""
    raw: npt.NDArray[Any]
    if kind == T.F32:
        raw = np.zeros((4096, 4096), np.float32)
    else:
        raw = np.repeat(random_blocks(kind, (64, 4096)), 32768 // 64, axis=0)
    if kind == T.IQ2_XXS:
        raw = raw[:4096]
    path = write(tmp_path / "m.gguf", {"w": (kind, raw)})
    height, bytes_in = len(raw), raw.nbytes
    del raw
    tracemalloc.start()
    try:
        weight = GgufWeights(GgufFile.open(path))["w"]
        if changed:
            weight = gathered(weight, np.arange(height)[::-1])
        parts = (
            [weight.tensor]
            if isinstance(weight, Float)
            else [weight.codes, weight.scales, weight.minimums]
        )
        sink = _Sink()
        for part in parts:
            if part is not None:
                cast(StreamedTensor, part).tofile(cast(IO[bytes], sink))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sink.bytes >= max(bytes_in, 64 << 20)
    assert peak < 48 << 20
