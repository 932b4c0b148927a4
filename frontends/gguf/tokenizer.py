"""From GGUF metadata to ``tokenizer.json`` and ``tokenizer_config.json``.

The ids are llama.cpp's, special tokens in a text included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontends.gguf.chat_template import chat_template, named_templates
from frontends.gguf.pre_tokenizers import pre_tokenizer
from frontends.gguf.vocabulary import KEY, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_GENAI = {"tokenizer_module.json": '{"tokenizer_class": "GemmaTokenizer"}'}
"""What onnxruntime-genai reads over the configuration, and nobody else does.

Under any other name it splits a text that is not to be split (0.18.0, measured: runs of spaces and
digits get other ids); under this one in the configuration, transformers loses the leading space.
"""
_MODELS = ("gpt2", "llama", "gemma4")
_ROLES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",
    "mask_token": "mask",
}
"""Names in the configuration, and in the keys, as those are spelled."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What was made.

    Attributes:
        files: contents by name.
        notes: what could not be made, as sentences.
        vocabulary: where there is a tokenizer.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None


def tokenizer_files(path: Path, metadata: Mapping[str, Any]) -> TokenizerFiles:
    """Tokenizer and chat template of a file; a model without them is still a model.

    Args:
        path: of the file, for messages.
        metadata: its keys.

    Raises:
        BadInput: it has a tokenizer of a known kind that is damaged or splits in an unknown way.
    """
    reason = _unusable(metadata)
    if reason:
        return TokenizerFiles(notes=(f"no tokenizer was written: {reason}",))
    from frontends.gguf.byte_level import byte_level, character_level
    from frontends.gguf.sentencepiece import sentencepiece

    make = {"gpt2": byte_level, "llama": sentencepiece, "gemma4": character_level}
    vocabulary = Vocabulary.of(path, metadata)
    tokenizer, config = make[vocabulary.model](vocabulary), _config(vocabulary)
    _add_special(tokenizer, vocabulary, config)
    files = {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2),
        **named_templates(metadata),
        **({} if vocabulary.model == "gpt2" else _GENAI),
    }
    return TokenizerFiles({name: text.encode() for name, text in files.items()}, (), vocabulary)


def _unusable(metadata: Mapping[str, Any]) -> str:
    """Why there is no tokenizer to make; nothing if there is."""
    for name in ("model", "tokens"):
        if not metadata.get(f"{KEY}{name}"):
            return f"the file has no key '{KEY}{name}'"
    model = metadata[f"{KEY}model"]
    if model not in _MODELS:
        return f"the key '{KEY}model' is '{model}', and only {', '.join(_MODELS)} can be made"
    if find_spec("tokenizers") is None:
        return "the package 'tokenizers' is not installed (pip install tokenizers)"
    return ""


def _config(vocabulary: Vocabulary) -> dict[str, Any]:
    """Content of ``tokenizer_config.json``: a text decodes to what it was, spaces and all."""
    bos = vocabulary.model == "llama" or pre_tokenizer(vocabulary).bos
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, name in _ROLES.items():
        number = vocabulary.special(name)
        if number is not None:
            config[role] = vocabulary.tokens[number]
    # Files of Gemma 4 say that bos is not added, and the model needs it.
    adds = vocabulary.model == "gemma4" or vocabulary.flag("add_bos_token", default=bos)
    config["add_bos_token"] = adds and "bos_token" in config
    adds = vocabulary.flag("add_eos_token", default=False)
    config["add_eos_token"] = adds and "eos_token" in config
    context = vocabulary.metadata.get(
        f"{vocabulary.metadata.get('general.architecture')}.context_length"
    )
    if isinstance(context, int):
        config["model_max_length"] = context
    template = chat_template(vocabulary.metadata)
    if template is not None:
        config["chat_template"] = template
    return config


def _add_special(tokenizer: Tokenizer, vocabulary: Vocabulary, config: Mapping[str, Any]) -> None:
    """Tokens that are cut out of a text before it is split, and those put around it."""
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_tokens(
        [
            AddedToken(text, normalized=False, special=special)
            for text, special in vocabulary.added()
        ]
    )
    first, last = (
        config[f"{role}_token"] if config[f"add_{role}_token"] else None for role in ("bos", "eos")
    )
    around = [text for text in (first, last) if text is not None]
    if around:
        one, two = ([first] if first else [], [last] if last else [])
        tokenizer.post_processor = TemplateProcessing(
            single=[*one, "$A", *two],
            pair=[*one, "$A", *two, *(f"{t}:1" for t in one), "$B:1", *(f"{t}:1" for t in two)],
            special_tokens=[
                (text, vocabulary.tokens.index(text)) for text in dict.fromkeys(around)
            ],
        )
