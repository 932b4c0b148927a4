"""Real decoders with a cache of fixed size, driven token by token against their originals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rewriter.cli import main
from rewriter.generate.decoder import opened
from rewriter.generate.folder import read_folder
from rewriter.generate.greedy import generate
from tests.shared import SHARED, needs_shared, static_pairs
from tests.shared.static_pairs import GEGLU, NEAR, ROWS, S, error, original, static_pair

pytestmark = needs_shared


@pytest.mark.parametrize("file", static_pairs.QUICK)
def test_a_static_pair_says_what_the_original_says(file: str, tmp_path: Path) -> None:
    """8 tokens and 16 steps on the CPU, and on the emulated NPU by tokens of its own.

    Every other model: ``pytest -m slow tests/sweeps/test_static_pairs.py``.
    """
    static_pairs.check(file, tmp_path)


def test_every_model_is_found() -> None:
    """A glob that finds nothing would pass."""
    assert len(static_pairs.GGUF) >= 15
    assert len(static_pairs.FOLDERS) >= 4
    assert len(static_pairs.GENAI) >= 7
    assert set(static_pairs.QUICK) <= set(static_pairs.EVERY)


def test_the_original_of_a_file_that_the_cpu_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is lowered itself, and gives the golden; the file is refused by the name of its node."""
    steps, folder = original(GEGLU, tmp_path / "original"), (SHARED / GEGLU).parent
    ids, golden = (
        np.load(folder.parent / "golden_hf.npz"),
        np.load(folder / "golden_decomposed.npz"),
    )
    assert error(steps(ids["input_ids"]), golden["prefill_logits"]) < NEAR
    assert error(steps(ids["decode_ids"]), golden["decode_logits"]) < NEAR
    capsys.readouterr()
    assert main(["run", str(folder), "--ids", "3"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"rewrite: {SHARED / GEGLU}: ONNX Runtime's CPU has no kernel for its com.microsoft::MoE "
        f"'/model/layers.0/moe/MoE' [activation_type=geglu/relu2]; 'rewrite {SHARED / GEGLU} "
        "--ep ort-cpu --parity none -o FOLDER' replaces it, or says why it cannot"
    )


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
