"""Decoders of the fixtures, rewritten and driven; held against plain ONNX Runtime and goldens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rewriter.cli import main
from rewriter.errors import BadInput
from rewriter.generate.decoder import opened
from rewriter.generate.folder import read_folder
from rewriter.generate.greedy import generate
from rewriter.parity.settings import DEVICE_MAX
from rewriter.runtime.versions import installed
from tests.steps import Steps

FIXTURES = Path(__file__).parents[3] / "fixtures"
GOLDEN, NEAR = 2e-4, 1e-4
S, ROWS = 8, 32
FAST = ["--parity", "none", "--no-place"]
STATIC = ["--static", "both", "--seq", str(S), "--max-seq-len", str(ROWS)]
CHECKPOINTS = ["gemma3", "gpt-oss", "gemma4-moe"]
"""Windows, sinks, caches that layers share and heads of two sizes."""


def rewritten(model: Path, folder: Path, ep: str, *words: str) -> Path:
    assert main([str(model), "--ep", ep, "-o", str(folder), *words, *FAST]) == 0
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Each checkpoint with a growing cache, and with a fixed one for QNN."""
    home = tmp_path_factory.mktemp("folders")
    found = {}
    for name in CHECKPOINTS:
        model = FIXTURES / "gguf" / name / "model.gguf"
        found[name, "growing"] = rewritten(model, home / f"{name}-growing", "ort-cpu")
        found[name, "static"] = rewritten(model, home / f"{name}-static", "qnn@2.7.0", *STATIC)
    return found


def golden(name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Ids (1, T) and logits (T, V)."""
    stored = np.load(FIXTURES / name / "golden.npz")
    logits = stored["logits"].reshape(-1, stored["logits"].shape[-1])
    assert np.isfinite(logits).all()
    assert logits.std() > 0
    return stored["input_ids"], logits


def error(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / expected.std())


@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_golden_logits(name: str, kind: str, folders: dict[tuple[str, str], Path]) -> None:
    ids, expected = golden(f"gguf/{name}")
    with opened(read_folder(folders[name, kind])) as decoder:
        for prompt in (1, S - 3, S, S + 5):
            decoder.restart()
            found = [decoder.feed(ids[:, :prompt])[0]]
            found += [decoder.feed(ids[:, i])[0] for i in range(prompt, ids.shape[1])]
            assert error(np.concatenate(found), expected) < GOLDEN, prompt


@pytest.mark.parametrize("kind", ["growing", "static"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_tokens_and_logits_of_the_growing_original(
    name: str, kind: str, folders: dict[tuple[str, str], Path]
) -> None:
    """Prompts of one token, shorter and longer than a chunk, and up to the last row."""
    ids = np.random.default_rng(5).integers(3, 64, ROWS).tolist()
    original = folders[name, "growing"] / "model.onnx"
    with opened(read_folder(folders[name, kind])) as decoder:
        for prompt, count in ((1, 6), (S - 1, 6), (2 * S + 3, 6), (ROWS - 3, 4), (ROWS, 1)):
            tokens, logits = Steps(original).greedy(ids[:prompt], count)
            decoder.restart()
            assert list(generate(decoder, ids[:prompt], count)) == tokens
            decoder.restart()
            read = np.array([ids[:prompt] + tokens[:-1]])
            assert error(decoder.feed(read)[0], logits) < NEAR


def test_windows_of_the_builder(tmp_path: Path) -> None:
    """A buffer of the newest rows takes no pads: full chunks, then one token after the other."""
    ids, expected = golden("genai/gemma2")
    model = FIXTURES / "genai" / "gemma2" / "model.onnx"
    folder = rewritten(model, tmp_path / "out", "onnx-standard", "--static", "both", "--seq", "4",
                       "--max-seq-len", "32")  # fmt: skip
    assert read_folder(folder).any_graph.caches.windowed
    for path in (folder, model.parent):
        with opened(read_folder(path)) as decoder:
            for prompt in (1, 3, 4, 9, 12):
                decoder.restart()
                found = [decoder.feed(ids[:, :prompt])[0]]
                found += [decoder.feed(ids[:, i])[0] for i in range(prompt, ids.shape[1])]
                assert error(np.concatenate(found), expected) < NEAR, (path, prompt)
    assert [name for name, _ in decoder.seconds[-1:]] == ["model"]


@pytest.mark.parametrize("name", ["genai/qwen2_int4", "genai/gptoss_int4"])
def test_no_activation_is_rounded_unless_asked(name: str) -> None:
    """The files give leave to; their goldens are of the stored weights in floats."""
    ids, expected = golden(name)
    found = {}
    for exact in (True, False):
        with opened(read_folder(FIXTURES / name), exact=exact) as decoder:
            found[exact] = error(decoder.feed(ids)[0], expected)
    assert found[True] < NEAR
    assert found[False] > 100 * NEAR


def test_a_graph_without_a_cache() -> None:
    ids, expected = golden("torch/mistral")
    with opened(read_folder(FIXTURES / "torch" / "mistral")) as decoder:
        found = [decoder.feed(ids[:, :3])[0]]
        found += [decoder.feed(ids[:, i])[0] for i in range(3, ids.shape[1])]
    assert error(np.concatenate(found), expected) < NEAR


@pytest.mark.skipif(installed("qnn") != "2.7.0", reason="onnxruntime-qnn 2.7.0 is not installed")
def test_the_emulated_npu(tmp_path: Path) -> None:
    """The same tokens, unless the two best logits are closer than the device is exact."""
    model = FIXTURES / "gguf" / "olmo2" / "model.gguf"
    growing = rewritten(model, tmp_path / "growing", "ort-cpu")
    static = rewritten(model, tmp_path / "static", "qnn@2.7.0", *STATIC)
    prompt = np.random.default_rng(5).integers(3, 64, S + 3).tolist()
    tokens, logits = Steps(growing / "model.onnx").greedy(prompt, 6)
    with opened(read_folder(static), "qnn") as decoder:
        assert decoder.versions["onnxruntime-qnn"] == "2.7.0"
        found = [decoder.feed([prompt])[0]]
        found += [decoder.feed([[token]])[0] for token in tokens[:-1]]
    assert {name for name, _ in decoder.seconds} == {"prefill", "decode"}
    emulated = np.concatenate(found)
    assert 1e-5 < error(emulated, logits) < DEVICE_MAX, "below 1e-5 it was not HTP"
    for at, token in enumerate(tokens, start=len(prompt) - 1):
        best, second = np.sort(logits[at])[:-3:-1]
        if best - second > 2 * DEVICE_MAX * logits.std():
            assert emulated[at].argmax() == token


def test_parts_are_bit_equal_to_the_whole(tmp_path: Path) -> None:
    model = FIXTURES / "gguf" / "olmo2" / "model.gguf"
    ids, expected = golden("gguf/olmo2")
    found = []
    for words in ([], ["--split", "2"]):
        folder = rewritten(model, tmp_path / f"out{len(words)}", "qnn@2.7.0", *STATIC, *words)
        with opened(read_folder(folder)) as decoder:
            rows = [decoder.feed(ids[:, :11]), *(decoder.feed(ids[:, i]) for i in range(11, 20))]
        found.append(np.concatenate(rows, axis=1)[0])
    assert len(decoder.folder.graphs["prefill"].parts) == 4
    assert error(found[0], expected) < GOLDEN
    np.testing.assert_array_equal(found[0], found[1])


def test_two_sequences_in_static_graphs(tmp_path: Path) -> None:
    """Each has a mask of its own; both have as many tokens."""
    model = FIXTURES / "gguf" / "gemma3" / "model.gguf"
    ids = np.random.default_rng(5).integers(3, 64, (2, S + 3))
    folder = rewritten(model, tmp_path / "two", "qnn@2.7.0", *STATIC, "--dim", "batch=2")
    single = rewritten(model, tmp_path / "one", "ort-cpu")
    with opened(read_folder(folder)) as decoder:
        found = [
            decoder.feed(ids[:, :S]),
            *(decoder.feed(ids[:, i : i + 1]) for i in range(S, S + 3)),
        ]
    assert decoder.folder.any_graph.batch == 2
    for row, logits in zip(ids, np.concatenate(found, axis=1), strict=True):
        assert error(logits, Steps(single / "model.onnx")(row[None])[0]) < NEAR


@pytest.mark.skipif(installed("qnn") != "2.7.0", reason="onnxruntime-qnn 2.7.0 is not installed")
def test_compiled_models_take_the_place_of_the_graphs(tmp_path: Path) -> None:
    model = FIXTURES / "gguf" / "olmo2" / "model.gguf"
    folder = rewritten(model, tmp_path / "out", "qnn@2.7.0", *STATIC, "--compile")
    ids, found = golden("gguf/olmo2")[0], {}
    for compiled in (True, False):
        with opened(read_folder(folder), "qnn") as decoder:
            assert decoder.compiled is compiled
            rows = [decoder.feed(ids[:, :S]), *(decoder.feed(ids[:, i]) for i in range(S, S + 3))]
            found[compiled] = np.concatenate(rows, axis=1)
        for binary in folder.glob("*_ctx*.bin"):
            binary.unlink()
        if compiled:
            with pytest.raises(BadInput, match=r"_ctx\.onnx: its binary .* is missing"):
                opened(read_folder(folder), "qnn").__enter__()
        for context in folder.glob("*_ctx.onnx"):
            context.unlink()
    np.testing.assert_array_equal(found[True], found[False])


@pytest.mark.skipif(installed("openvino") is None, reason="openvino is not installed")
def test_openvino(folders: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    model = FIXTURES / "gguf" / "gemma3" / "model.gguf"
    folder = rewritten(model, tmp_path / "out", "openvino", *STATIC)
    ids = np.random.default_rng(5).integers(3, 64, S + 3).tolist()
    tokens, logits = Steps(folders["gemma3", "growing"] / "model.onnx").greedy(ids, 5)
    with opened(read_folder(folder), "openvino") as decoder:
        assert list(generate(decoder, ids, 5)) == tokens
        decoder.restart()
        assert error(decoder.feed([ids + tokens[:-1]])[0], logits) < NEAR
