"""Tokenizers of the shared GGUF files against llama.cpp's and SentencePiece's ids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from frontends import open_source
from frontends.gguf.companions import companions_of
from frontends.gguf.file import GgufFile
from rewriter.cli import main
from rewriter.genai import check
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared

MODELS = SHARED / "models"
FILES = sorted(str(p.relative_to(MODELS)) for p in MODELS.glob("*/Q4_K_M.gguf"))


def _golden(file: str) -> list[Any]:
    found: list[Any] = json.loads((MODELS / file).read_text())
    assert len(found) >= 8
    return found


def _files(model: str) -> dict[str, bytes]:
    companions = open_source(MODELS / model / "Q4_K_M.gguf").companions().files
    return {name: content for name, content in companions.items() if isinstance(content, bytes)}


def _tokenizer(model: str) -> Tokenizer:
    return Tokenizer.from_str(_files(model)["tokenizer.json"].decode())


@pytest.mark.parametrize("model", ["llama", "llama-spm"])
def test_ids_of_llamacpp(model: str) -> None:
    tokenizer = _tokenizer(model)
    for case in _golden(f"{model}/golden_tokens_llamacpp.json"):
        ids = tokenizer.encode(case["text"], add_special_tokens=False).ids
        assert ids == case["ids"], case["text"]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        if "<s>" not in case["text"]:  # A space follows a special token.
            assert text == case["text"]


def test_ids_of_sentencepiece() -> None:
    """But for runs of white space, which it makes one space and llama.cpp keeps."""
    tokenizer, plain = _tokenizer("llama-spm"), 0
    for case in _golden("llama-spm/golden_tokens_sentencepiece.json"):
        text = re.sub(r"\s+", " ", case["text"]).strip()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == case["ids"], text
        assert tokenizer.decode(ids) == case["decoded"]
        plain += text == case["text"]
    assert plain >= 6


def test_ids_of_the_checkpoints_own_tokenizer() -> None:
    own = Tokenizer.from_file(str(MODELS / "llama" / "hf" / "tokenizer.json"))
    tokenizer = _tokenizer("llama")
    for case in _golden("llama/golden_tokens_llamacpp.json"):
        assert tokenizer.encode(case["text"]).ids == own.encode(case["text"]).ids


def test_bos_and_the_chat_template() -> None:
    tokenizer, config = _tokenizer("llama-spm"), _files("llama-spm")["tokenizer_config.json"]
    assert tokenizer.encode("x").ids[0] == 1
    metadata = GgufFile.open(MODELS / "llama-spm" / "Q4_K_M.gguf").metadata
    assert json.loads(config)["chat_template"] == metadata["tokenizer.chat_template"]
    assert json.loads(config)["add_bos_token"] is True


@pytest.mark.parametrize("file", FILES)
def test_a_written_folder_can_be_configured(file: str, tmp_path: Path) -> None:
    """Layers with a cache only, where others share theirs; the runtime reads sizes of each."""
    out = tmp_path / "out"
    ran = main([str(MODELS / file), "--ep", "ort-cpu", "-o", str(out), "--parity", "none"])
    assert ran == 0
    path = MODELS / file
    found = companions_of(path, GgufFile.open(path).metadata)
    assert found.genai is not None
    assert found.notes == found.genai.notes == ()
    model = json.loads((out / "genai_config.json").read_text(encoding="utf-8"))["model"]
    assert (model["vocab_size"], model["context_length"]) == (384, 512)
    layers = 5 if path.parent.name == "gemma4-e2b" else None
    assert model["decoder"]["num_hidden_layers"] == layers or layers is None
    assert {"tokenizer.json", "tokenizer_config.json"} <= {p.name for p in out.iterdir()}


def test_phases_get_a_tokenizer_and_a_pipeline(tmp_path: Path) -> None:
    out, path = tmp_path / "out", MODELS / "llama" / "Q4_K_M.gguf"
    command = [str(path), "--ep", "qnn", "-o", str(out), "--parity", "none", "--no-place"]
    assert main([*command, "--seq", "8", "--max-seq-len", "64"]) == 0
    config = json.loads((out / "genai_config.json").read_text(encoding="utf-8"))
    assert config["model"]["type"] == "decoder-pipeline"
    assert config["model"]["context_length"] == 64
    assert config["model"]["decoder"]["sliding_window"]["window_size"] == 8
    check(config, out)
    assert (out / "tokenizer.json").is_file()
