"""What onnxruntime-genai has to know of a model is in the keys of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontends.gguf.companions import companions_of
from frontends.gguf.genai_config import genai_config
from frontends.gguf.vocabulary import Vocabulary

METADATA: dict[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.context_length": 128,
    "qwen2.embedding_length": 48,
    "qwen2.attention.head_count": 6,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|im_end|>", "<|endoftext|>", "<pad>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 3,
    "tokenizer.ggml.padding_token_id": 5,
}


def _config(**more: Any) -> dict[str, Any]:
    metadata = {**METADATA, **more}
    config: dict[str, Any] = json.loads(
        genai_config(metadata, Vocabulary.of(Path("m.gguf"), metadata))
    )
    return config


def test_what_it_says() -> None:
    model = _config()["model"]
    assert model == {
        "type": "qwen2",
        "eos_token_id": [3, 4],
        "pad_token_id": 5,
        "context_length": 128,
        "decoder": {"hidden_size": 48, "num_attention_heads": 6},
    }


def test_special_tokens() -> None:
    tokens = ["<unk>", "<s>", "</s>", "a"]
    more: dict[str, Any] = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens}
    more |= {"tokenizer.ggml.token_type": [2, 3, 3, 1], "tokenizer.ggml.eos_token_id": None}
    more |= {"tokenizer.ggml.padding_token_id": None, "general.architecture": "olmo2"}
    more |= {"olmo2.embedding_length": 48, "olmo2.attention.head_count": [6, 4]}
    more |= {"olmo2.context_length": 128}
    model = _config(**more)["model"]
    assert model["type"] == "decoder"
    assert model["bos_token_id"] == 1
    assert model["eos_token_id"] == 2
    assert model["pad_token_id"] == 2
    assert model["decoder"]["num_attention_heads"] == 6


@pytest.mark.parametrize(
    ("tokens", "kinds", "pad"),
    [
        (["<s>", "</s>", "a", "<unused0>"], [3, 3, 1, 5], 3),
        (["<s>", "</s>", "<|reserved_special_token_0|>", "a"], [3, 3, 3, 1], 2),
        # Nothing says that these are no part of a text, or of a chat.
        (["<s>", "</s>", "reserved", "<|user|>"], [3, 3, 1, 3], 1),
    ],
)
def test_the_pad_is_a_token_that_no_prompt_holds(
    tokens: list[str], kinds: list[int], pad: int
) -> None:
    """The runtime looks for it in prompts that it reads in windows."""
    more: dict[str, Any] = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    more |= {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
    more |= {"tokenizer.ggml.merges": []}
    assert _config(**more, **{"tokenizer.ggml.padding_token_id": 1})["model"]["pad_token_id"] == pad
    more["tokenizer.ggml.padding_token_id"] = None
    assert _config(**more)["model"]["pad_token_id"] == pad


def test_a_splitter_that_the_runtime_lacks_is_noted() -> None:
    """With the configuration, since nobody else needs to know."""
    made = companions_of(Path("m.gguf"), METADATA)
    assert set(made.files) == {"tokenizer.json", "tokenizer_config.json"}
    assert made.genai is not None
    assert made.notes == made.genai.notes == ()
    made = companions_of(Path("m.gguf"), {**METADATA, "tokenizer.ggml.pre": "falcon"})
    assert made.notes == ()
    assert made.genai is not None
    assert "'falcon'" in made.genai.notes[0]


def test_a_model_without_tokenizer_has_no_configuration() -> None:
    made = companions_of(Path("m.gguf"), {**METADATA, "tokenizer.ggml.model": "bert"})
    assert not made.files
    assert made.genai is None
    assert "'bert'" in made.notes[0]
