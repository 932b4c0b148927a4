"""Folders that were written, run by onnxruntime-genai itself in an environment of its own.

Slow, because the environment is made first: ``pytest -m slow tests/sweeps/test_genai.py``. It is
kept in the folder that ``REWRITE_ENVIRONMENTS`` names, if it is set (as ``genai-0.18.0``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewriter.cli import main
from rewriter.genai import check
from rewriter.genai.base import genai_base
from tests.shared import SHARED, needs_shared
from tests.steps import Steps
from tests.sweeps.environments import python_of

pytestmark = [needs_shared, pytest.mark.slow]
DRIVER = "genai@0.18.0"
WORKER = Path(__file__).with_name("genai_worker.py")
MODELS, OPTIMUM = SHARED / "models", SHARED / "onnx" / "optimum" / "llama_with_past"
WINDOW, ROWS, TOKENS, PAD = 8, 32, 6, 255
IDS = [5, 9, 13, 20, 31, 44, 51, 63, 7, 11, 17, 100, 101, 102, 103, 104, 105, 106, 107, 108, 110]
Talk = list[list[int] | int]
PROMPTS = [IDS[:count] for count in (1, 3, 8, 9, 16, 21)]
"""Shorter than the window, as long, longer, and of whole windows."""

CHECKPOINTS = [f"{name}/Q4_K_M.gguf" for name in ("llama", "qwen3", "phi3", "qwen3moe", "gemma3")]
CHECKPOINTS += ["gemma4-e2b/f32.gguf", "llama/hf", "qwen3moe/hf", "gemma4-e2b/hf"]


def _written(source: Path, out: Path, *words: str) -> Path:
    """A folder, whose configuration was checked."""
    command = [str(source), "-o", str(out), "--parity", "none", "--no-place", *words]
    assert main(command) == 0
    check(json.loads((out / "genai_config.json").read_text(encoding="utf-8")), out)
    return out


def _static(source: Path, out: Path, *words: str) -> Path:
    sizes = ["--static", "both", "--seq", str(WINDOW), "--max-seq-len", str(ROWS)]
    return _written(source, out, "--ep", "qnn", *sizes, *words)


def _on_the_cpu(folder: Path) -> Path:
    """The same graphs and configuration, on sessions without an EP."""
    copy = Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-cpu")))
    config = json.loads((copy / "genai_config.json").read_text(encoding="utf-8"))
    decoder = config["model"]["decoder"]
    for stage in [decoder, *decoder["pipeline"][0].values()]:
        stage.get("session_options", {})["provider_options"] = []
    (copy / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    return copy


def _generated(folder: Path, environments: Path, talks: list[Talk], plugin: str = "") -> list[Any]:
    """What the runtime makes of talks: prompts, and how many tokens to generate after them."""
    asked = {"folder": str(folder), "talks": talks, "plugin": plugin}
    done = subprocess.run(
        [python_of(environments, DRIVER), str(WORKER)],
        input=json.dumps(asked | {"name": "QNNExecutionProvider"}),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _check(folder: Path, plain: Path, environments: Path, ends: set[int]) -> list[list[int]]:
    """Tokens and logits are those of stepping a graph of any length on ONNX Runtime."""
    steps = Steps(plain)
    found = _generated(folder, environments, [[prompt, TOKENS] for prompt in PROMPTS])
    for prompt, (tokens, after) in zip(PROMPTS, found, strict=True):
        steps.restart()
        wanted, logits = steps.greedy(prompt, TOKENS + 1)
        last = next((i for i, token in enumerate(wanted) if token in ends), TOKENS) + 1
        assert tokens == wanted[: min(last, TOKENS)]
        assert bool(after) is (last > TOKENS)
        if after:
            row = logits[-1]
            assert np.abs(row - after).max() < 1e-4 * row.std()
    assert len({tuple(tokens) for tokens, _ in found}) == len(PROMPTS)
    assert any(after for _, after in found)
    return [tokens for tokens, _ in found]


def _tokens_of(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Those alone."""
    steps, found = Steps(model), []
    for prompt in prompts:
        steps.restart()
        found.append(steps.greedy(prompt, TOKENS)[0])
    assert len({tuple(made) for made in found}) == len(prompts)
    return found


def _ends(folder: Path) -> set[int]:
    stated = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
    ends = stated.get("eos_token_id", [])
    return set(ends if isinstance(ends, list) else [ends])


@pytest.mark.parametrize("file", CHECKPOINTS)
def test_a_cpu_folder(
    file: str, environments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tokens are those of the graph, and those of ``rewrite run``."""
    folder = _written(MODELS / file, tmp_path / "o", "--ep", "ort-cpu")
    found = _check(folder, folder / "model.onnx", environments, _ends(folder))
    capsys.readouterr()
    for prompt, tokens in zip(PROMPTS[:2], found, strict=False):
        ids = ",".join(map(str, prompt))
        assert main(["run", str(folder), "--ids", ids, "--max-new-tokens", str(TOKENS)]) == 0
        assert capsys.readouterr().out.strip() == ",".join(map(str, tokens))


@pytest.mark.parametrize("file", CHECKPOINTS)
@pytest.mark.parametrize("words", [(), ("--split", "2")], ids=["whole", "parts"])
def test_windows(file: str, words: tuple[str, ...], environments: Path, tmp_path: Path) -> None:
    """Caches that start in front: prompts of any length, read in windows that are padded behind."""
    plain = _written(MODELS / file, tmp_path / "o", "--ep", "ort-cpu", "--max-seq-len", str(ROWS))
    folder = _on_the_cpu(_static(MODELS / file, tmp_path / "s", *words))
    _check(folder, plain / "model.onnx", environments, _ends(plain))


def _end_aligned(folder: Path) -> Path:
    """A cache that optimum lets grow: padded in front, and the oldest rows move out."""
    source = Path(shutil.copytree(OPTIMUM, folder / "m"))
    base = genai_base(
        "llama", context_length=256, hidden_size=64, num_attention_heads=4, ends=[2], pad=PAD
    )
    (source / "genai_config.json").write_bytes(base)
    written = _on_the_cpu(_static(source / "model.onnx", folder / "s"))
    config = json.loads((written / "genai_config.json").read_text(encoding="utf-8"))
    assert config["model"]["decoder"]["sliding_window"]["alignment"] == "right"
    return written


def test_windows_of_caches_that_end_at_the_end(environments: Path, tmp_path: Path) -> None:
    _check(_end_aligned(tmp_path), OPTIMUM / "model.onnx", environments, {2})


@pytest.mark.parametrize("alignment", ["left", "right"])
def test_a_talk(alignment: str, environments: Path, tmp_path: Path) -> None:
    """More than one prompt, and the token for padding in a prompt."""
    if alignment == "right":
        folder, plain, pad = _end_aligned(tmp_path), OPTIMUM / "model.onnx", PAD
    else:
        file, sizes = MODELS / "llama" / "Q4_K_M.gguf", ["--max-seq-len", str(ROWS)]
        folder = _on_the_cpu(_static(file, tmp_path / "s"))
        plain = _written(file, tmp_path / "o", "--ep", "ort-cpu", *sizes) / "model.onnx"
        pad = 0
    said = [5, 9, 13]
    (answer,) = _tokens_of(plain, [said])
    # The runtime does not read the last token that it generated; whoever goes on appends it.
    more = [*answer[2:3], 20, 21]
    talks: list[Talk] = [
        [said, 3, more, 3],
        [said, [20, 21], 3],
        [IDS[:9], IDS[9:12], 3],
        [[5, pad, 9], 3],
    ]
    whole = [[*said, *answer[:2], *more], [*said, 20, 21], IDS[:12], [5, pad, 9]]
    wanted = [tokens[:3] for tokens in _tokens_of(plain, whole)]
    wanted[0] = answer[:3] + wanted[0]
    assert [tokens for tokens, _ in _generated(folder, environments, talks)] == wanted


def test_a_full_cache(environments: Path, tmp_path: Path) -> None:
    """Padding counts: whole windows fit, one more token does not."""
    folder = _on_the_cpu(_static(MODELS / "llama" / "Q4_K_M.gguf", tmp_path / "s"))
    prompts = [IDS[:3], (IDS + IDS)[:ROWS], (IDS + IDS)[: ROWS + 1]]
    talks: list[Talk] = [[prompt, ROWS] for prompt in prompts]
    short, full, long = _generated(folder, environments, talks)
    assert len(short[0]) == ROWS - WINDOW
    assert "already at max_length (32)" in full
    assert "exceeds max length (32)" in long


@pytest.mark.parametrize("words", [(), ("--compile",)], ids=["graphs", "compiled"])
def test_on_htp(words: tuple[str, ...], environments: Path, tmp_path: Path) -> None:
    """The plugin, in emulation: the same tokens, until two are as likely for its arithmetic."""
    source = MODELS / "llama" / "Q4_K_M.gguf"
    plain = _written(source, tmp_path / "o", "--ep", "ort-cpu", "--max-seq-len", str(ROWS))
    folder = _static(source, tmp_path / "s", "--option", "soc_model=60", *words)
    prompts = [PROMPTS[i] for i in (0, 1, 3)]
    talks: list[Talk] = [[prompt, 4] for prompt in prompts]
    found = _generated(folder, environments, talks, "onnxruntime_qnn")
    steps, same = Steps(plain / "model.onnx"), 0
    for prompt, (tokens, _) in zip(prompts, found, strict=True):
        steps.restart()
        _, logits = steps.greedy(prompt + tokens[:-1], 1)
        for row, token in zip(logits[len(prompt) - 1 :], tokens, strict=True):
            assert (row.max() - row[token]) / row.std() < 0.03, (prompt, tokens)
            same += int(token == row.argmax())
    assert same >= 10
