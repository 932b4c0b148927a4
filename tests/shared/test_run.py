"""Real decoders with a cache of fixed size, driven token by token against their originals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.generate.decoder import opened
from rewriter.generate.folder import read_folder
from rewriter.generate.greedy import generate
from rewriter.parity.settings import DEVICE_MAX
from rewriter.runtime.versions import installed
from tests.shared import SHARED, needs_shared
from tests.steps import Steps

pytestmark = needs_shared

MODELS, GENAI = SHARED / "models", SHARED / "onnx" / "genai"
UNREADABLE = {"gemma4_moe"}
"""Files that ONNX Runtime's CPU refuses (geglu), so that there is no original to compare with."""
CHECKPOINTS = sorted(str(p.relative_to(SHARED)) for p in MODELS.glob("*/Q4_K_M.gguf"))
FILES = CHECKPOINTS + sorted(
    str(p.relative_to(SHARED))
    for p in GENAI.glob("*/*/model.onnx")
    if p.parents[1].name not in UNREADABLE
)
S, ROWS, STEPS, NEAR = 8, 32, 16, 1e-4
FAST = ["--parity", "none", "--no-place"]
STATIC = ["--static", "both", "--seq", str(S), "--max-seq-len", str(ROWS)]


def static_pair(file: str, ep: str, folder: Path) -> Path:
    words = [str(SHARED / file), "--ep", ep, "-o", str(folder), *STATIC, *FAST]
    assert main(words) == 0
    return folder


def original(file: str, folder: Path) -> Steps:
    """The same with growing caches on ONNX Runtime's CPU, nothing rounded."""
    source, sizes = SHARED / file, {}
    if source.suffix == ".gguf":
        assert main([str(source), "--ep", "ort-cpu", "-o", str(folder), *FAST]) == 0
        return Steps(folder / "model.onnx")
    config = source.parent / "genai_config.json"
    if config.exists():
        decoder = json.loads(config.read_text(encoding="utf-8"))["model"]["decoder"]
        sizes["kv_cache_dim"] = decoder["head_size"]
    model = ir.load(source)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        node.attributes.pop("accuracy_level", None)
    folder.mkdir()
    ir.save(model, folder / "model.onnx", external_data="model.onnx.data")
    return Steps(folder / "model.onnx", sizes)


def prompt_of(file: str) -> list[int]:
    """The first ids of the golden that lies beside or above."""
    source = (SHARED / file).parent
    golden = next(f for f in (source, source.parent) if (f / "golden_hf.npz").exists())
    ids: list[int] = np.load(golden / "golden_hf.npz")["input_ids"][0].tolist()
    return ids


def error(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    assert found.shape == expected.shape
    assert np.isfinite(expected).all()
    assert expected.std() > 0.1
    return float(np.abs(found - expected).max() / expected.std())


@pytest.mark.parametrize("file", FILES)
def test_a_static_pair_says_what_the_original_says(file: str, tmp_path: Path) -> None:
    """8 tokens and 16 steps on the CPU, and the same tokens on the emulated NPU."""
    steps, prompt = original(file, tmp_path / "original"), prompt_of(file)[:S]
    tokens, logits = steps.greedy(prompt, STEPS)
    folder = read_folder(static_pair(file, "qnn@2.7.0", tmp_path / "static"))
    with opened(folder) as decoder:
        assert list(generate(decoder, prompt, STEPS)) == tokens
        decoder.restart()
        found = [decoder.feed(prompt)[0]]
        found += [decoder.feed([token])[0] for token in tokens[:-1]]
    assert error(np.concatenate(found), logits) < NEAR
    if installed("qnn") != "2.7.0":
        pytest.skip("onnxruntime-qnn 2.7.0 is not installed")
    with opened(folder, "qnn") as decoder:
        found = [decoder.feed(prompt)[0]]
        found += [decoder.feed([token])[0] for token in tokens[:-1]]
    emulated = np.concatenate(found)
    assert error(emulated, logits) > 1e-5, "it was not HTP"
    best, second = np.sort(logits, axis=1)[:, :-3:-1].T
    clear = best - second > 2 * DEVICE_MAX * logits.std()
    assert clear.sum() > len(logits) // 2
    assert (emulated.argmax(axis=1) == logits.argmax(axis=1))[clear].all()


@pytest.mark.parametrize(
    "file",
    [
        "models/llama/Q4_K_M.gguf",
        "models/gemma3/Q4_K_M.gguf",
        "models/gemma4-e2b/Q4_K_M.gguf",
        "onnx/genai/llama/fp32/model.onnx",
        "onnx/optimum/llama_with_past/model.onnx",
    ],
)
def test_prompts_of_every_length(file: str, tmp_path: Path) -> None:
    """One token, shorter and longer than a chunk, no multiple of it, up to the last row."""
    rng = np.random.default_rng(11)
    ids = rng.integers(3, 250, ROWS).tolist()
    steps = original(file, tmp_path / "original")
    folder = read_folder(static_pair(file, "onnx-standard", tmp_path / "static"))
    with opened(folder) as decoder:
        for prompt in (1, S - 1, S, S + 1, 2 * S + 3, ROWS - 3, ROWS):
            count = min(4, ROWS - prompt + 1)
            steps.restart()
            tokens, logits = steps.greedy(ids[:prompt], count)
            decoder.restart()
            assert list(generate(decoder, ids[:prompt], count)) == tokens, prompt
            decoder.restart()
            assert error(decoder.feed(ids[:prompt] + tokens[:-1])[0], logits) < NEAR, prompt
