"""Token ids against llama.cpp's own; ``fixtures/make_tokenizer_fixtures.py`` made the goldens."""

from __future__ import annotations

import json
import unicodedata
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from frontends.gguf.pre_tokenizers import PRE_TOKENIZERS
from frontends.gguf.tokenizer import tokenizer_files

FIXTURES = Path(__file__).parents[3] / "fixtures" / "tokenizers"
GOLDEN = {path.stem: json.loads(path.read_text()) for path in FIXTURES.glob("*.json")}
BYTE_LEVEL = GOLDEN["byte_level"]
PREFIX: dict[str, dict[str, Any]] = {"prefix": {}, "no prefix": {"add_space_prefix": False}}
APPROXIMATE = {"gpt-4o", "tekken", "deepseek-coder", "deepseek-llm"}
"""Where llama.cpp's regex engine cannot do what the models' own tokenizers do."""


def _tokenizer(golden: dict[str, Any], **more: Any) -> Tokenizer:
    metadata = {f"tokenizer.ggml.{k}": v for k, v in {**golden["metadata"], **more}.items()}
    made = tokenizer_files(Path("model.gguf"), metadata)
    assert not made.notes
    return Tokenizer.from_str(made.files["tokenizer.json"].decode())


def _differs(pre: str, text: str) -> bool:
    """Whether a text has what llama.cpp only approximates: see ``pre_tokenizers``."""
    if pre.startswith("deepseek"):
        return any(c.isspace() and c > "\x7f" for c in text)
    kinds = {unicodedata.category(c) for c in text if c > "\x7f"}
    return not kinds.isdisjoint({"Lu", "Ll", "Lt", "Mn", "Mc", "Me"})


@pytest.mark.parametrize("pre", BYTE_LEVEL["ids"])
def test_byte_level(pre: str) -> None:
    tokenizer, compared = _tokenizer(BYTE_LEVEL, pre=pre), 0
    for text, ids in zip(BYTE_LEVEL["texts"], BYTE_LEVEL["ids"][pre], strict=True):
        if pre not in APPROXIMATE or not _differs(pre, text):
            assert tokenizer.encode(text).ids == ids, text
            compared += bool(text)
        found = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(found.ids, skip_special_tokens=False) == text
    assert compared > 10


def test_every_pre_tokenizer_has_a_golden() -> None:
    assert {PRE_TOKENIZERS[pre] for pre in BYTE_LEVEL["ids"]} == set(PRE_TOKENIZERS.values())


def test_the_goldens_tell_pre_tokenizers_apart() -> None:
    """Each splits some text as no other does, so that one taken for another is seen.

    But for two pairs: minicpm5 takes tokens whole, of which this vocabulary has none, and
    bailingmoe's expression is qwen2's in other words.
    """
    ids = BYTE_LEVEL["ids"]
    same = {(one, other) for one, other in combinations(sorted(ids), 2) if ids[one] == ids[other]}
    assert same == {("bailingmoe", "qwen2"), ("dbrx", "minicpm5")}


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-4o", "éÉa ÀÉa", ["é", "Éa", " ÀÉa"]),
        ("gpt-4o", "नमस्ते दुनिया'll", ["नमस्ते", " दुनिया'll"]),
        ("tekken", "don'T 12 ไทย้", ["don", "'T", " ", "1", "2", " ไทย้"]),
        ("deepseek-coder", "+\u3000\u300012", ["+", "\u3000\u3000", "1", "2"]),
    ],
)
def test_where_llamacpp_approximates_the_models_own_split_holds(
    pre: str, text: str, pieces: list[str]
) -> None:
    split = _tokenizer(BYTE_LEVEL, pre=pre).pre_tokenizer
    assert split is not None
    spans = [span for _, span in split.pre_tokenize_str(text)]
    assert [text[start:end] for start, end in spans] == pieces


@pytest.mark.parametrize("prefix", PREFIX)
def test_sentencepiece(prefix: str) -> None:
    golden = GOLDEN["sentencepiece"]
    tokenizer = _tokenizer(golden, **PREFIX[prefix])
    for text, ids in zip(golden["texts"], golden["ids"][prefix], strict=True):
        assert tokenizer.encode(text).ids == ids, text
        cut = any(token in text for token in ("<s>", "</s>", "<|user|>", "<unk>", "  "))
        if not (
            cut and prefix == "prefix"
        ):  # What follows a token of these has a space of its own.
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_gemma4() -> None:
    golden = GOLDEN["gemma4"]
    tokenizer = _tokenizer(golden)
    for text, ids in zip(golden["texts"], golden["ids"]["gemma4"], strict=True):
        assert tokenizer.encode(text).ids == ids, text
        assert tokenizer.decode(ids[1:], skip_special_tokens=False) == text
