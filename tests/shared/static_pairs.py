"""Decoders with a cache of fixed size, driven token by token against their originals.

The original has growing caches and runs on ONNX Runtime's CPU with nothing rounded. Of a checkpoint
it is the portable graph of the same reader; of a file of onnxruntime-genai's builder, that file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.cli import main
from rewriter.generate.decoder import opened
from rewriter.generate.folder import Folder, read_folder
from rewriter.parity.settings import DEVICE_MAX
from rewriter.runtime.versions import installed
from tests.shared import SHARED
from tests.steps import Steps

Array = npt.NDArray[Any]

QNN, S, ROWS, STEPS, NEAR = "qnn@2.7.0", 8, 32, 16, 1e-4
GEGLU = "onnx/genai/gemma4_moe/fp32_fullkv/model.onnx"
"""Its experts have an activation that ONNX Runtime's CPU has no kernel for."""


def _found(pattern: str) -> list[str]:
    return sorted(str(path.relative_to(SHARED)) for path in SHARED.glob(pattern))


GGUF = _found("models/*/*.gguf")
FOLDERS = [str(Path(file).parent) for file in _found("models/*/*/config.json")]
GENAI = _found("onnx/genai/*/*/model.onnx")
EVERY = GGUF + FOLDERS + GENAI
QUICK = [
    *(f for f in GGUF if f == "models/llama/Q4_K_M.gguf"),
    *(f for f in FOLDERS if f == "models/llama/hf" or "quark" in f),
    *GENAI,
]
"""One of a kind: every reader, the simplest decoder, genai's with most in it, and experts."""


def prompt_of(file: str) -> list[int]:
    """The first ids of the golden that lies in the folder, beside the file or above."""
    folders = [SHARED / file, *(SHARED / file).parents[:2]]
    goldens = (f / name for f in folders for name in ("golden_hf.npz", "golden.npz"))
    ids: list[int] = np.load(next(g for g in goldens if g.exists()))["input_ids"][0].tolist()
    return ids


def original(file: str, folder: Path) -> Steps:
    """What the static pair is compared with.

    Of :data:`GEGLU` it is that graph with its experts lowered for the CPU; ``test_run`` holds it
    against the golden of the file.
    """
    source, sizes = SHARED / file, {}
    if file == GEGLU or source.suffix != ".onnx":
        return Steps(_written(file, folder, "ort-cpu", "--no-place"))
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


def static_pair(file: str, ep: str, folder: Path, report: Path | None = None) -> Path:
    """The folder of two graphs with caches of fixed size; placed if a report is asked for."""
    sizes = ["--static", "both", "--seq", str(S), "--max-seq-len", str(ROWS)]
    placing = ["--no-place"] if report is None else ["--report", str(report)]
    return _written(file, folder, ep, *sizes, *placing).parent


def _written(file: str, folder: Path, ep: str, *words: str) -> Path:
    """What ``rewrite`` makes of it, not compared."""
    command = [str(SHARED / file), "--ep", ep, "-o", str(folder), "--parity", "none"]
    assert main([*command, *words]) == 0
    return folder / "model.onnx"


def error(found: Array, expected: Array) -> float:
    """The largest difference, in standard deviations of what is expected."""
    assert found.shape == expected.shape
    assert np.isfinite(expected).all()
    assert expected.std() > 0.1
    return float(np.abs(found - expected).max() / expected.std())


@dataclass(frozen=True, slots=True)
class Greedy:
    """What was generated greedily.

    Attributes:
        tokens: after the prompt.
        logits: (T, V) of all tokens that were read.
    """

    tokens: list[int]
    logits: Array


def read(folder: Folder, ep: str, prompt: Sequence[int], tokens: Sequence[int]) -> Greedy:
    """Drive a folder with the tokens that it generates itself, as long as they are those given.

    From the first other one on the given ones are read, so that each step can be compared.
    """
    with opened(folder, ep) as decoder:
        found, own = [decoder.feed(prompt)[0]], list[int]()
        for step, given in enumerate(tokens[:-1], start=1):
            own.append(int(found[-1][-1].argmax()))
            found.append(decoder.feed([own[-1] if own == tokens[:step] else given])[0])
        own.append(int(found[-1][-1].argmax()))
    return Greedy(own, np.concatenate(found))


def check(file: str, scratch: Path, report: Path | None = None) -> str:
    """Hold the static pair of a file against its original; says how far apart they are.

    Args:
        file: one of :data:`EVERY`.
        scratch: a folder to write to.
        report: asks for placement too, and gets the report of it.
    """
    steps, prompt = original(file, scratch / "original"), prompt_of(file)[:S]
    wanted = Greedy(*steps.greedy(prompt, STEPS))
    folder = read_folder(static_pair(file, QNN, scratch / "static", report))
    said = _check_on_cpu(folder, prompt, wanted)
    if report is not None:
        said = f"{_check_placed(report)}, {said}"
    if f"qnn@{installed('qnn')}" != QNN:
        pytest.skip("onnxruntime-qnn 2.7.0 is not installed")
    return f"{said}, {_check_on_htp(folder, prompt, wanted)}"


def _check_on_cpu(folder: Folder, prompt: Sequence[int], wanted: Greedy) -> str:
    """The same tokens, and logits as near as two right programs in float32 are."""
    found = read(folder, "ort-cpu", prompt, wanted.tokens)
    assert found.tokens == wanted.tokens
    worst = error(found.logits, wanted.logits)
    assert worst < NEAR
    return f"CPU {worst:.1e} of std"


def _check_placed(report: Path) -> str:
    """No node of a graph is left to the CPU."""
    graphs = json.loads(report.read_text(encoding="utf-8"))["graphs"]
    placed = {graph["phase"]: graph["placement"] for graph in graphs}
    assert list(placed) == ["prefill", "decode"]
    for found in placed.values():
        assert (found["on_cpu"], found["partitions"], found["full"]) == (0, 1, True)
    return f"placed {' + '.join(str(found['on_ep']) for found in placed.values())} nodes"


def _check_on_htp(folder: Folder, prompt: Sequence[int], wanted: Greedy) -> str:
    """The same tokens, unless the CPU's logits of the two are nearer than the device is exact.

    Both graphs run whole there, as no session is created otherwise. What goes for the generated
    tokens goes for those of the prompt, each of which has a likeliest next one.
    """
    found = read(folder, "qnn", prompt, wanted.tokens)
    logits, std = wanted.logits, wanted.logits.std()
    chosen = np.take_along_axis(logits, found.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
    gaps = (logits.max(axis=1) - chosen) / std
    worst = error(found.logits, logits)
    rms = float(np.sqrt(np.mean((found.logits - logits) ** 2)) / std)
    after = gaps[len(prompt) - 1 :]
    first = f"{len(after)} tokens equal"
    if found.tokens != wanted.tokens:
        at = next(i for i, token in enumerate(found.tokens) if token != wanted.tokens[i])
        first = f"token {at} is another, {after[at]:.2e} of std below the best on the CPU"
    said = f"HTP {worst:.1e} (rms {rms:.1e}) of std, {first}"
    assert worst > 1e-5, "it was not HTP"
    # A router whose choice is as good as a tie takes another expert, and the token's logits differ.
    assert np.median(np.abs(found.logits - logits).max(axis=1)) < DEVICE_MAX * std, said
    assert (gaps <= DEVICE_MAX).all(), said
    assert (gaps == 0).sum() > len(gaps) // 2, said
    return said
