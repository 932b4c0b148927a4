"""From GGUF metadata to ``tokenizer.json`` and ``tokenizer_config.json``.

The ids are llama.cpp's: special tokens are found in a text first, the longest of them first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontends.gguf.chat_template import chat_templates
from frontends.gguf.vocabulary import KEY, Vocabulary
from rewriter.errors import BadInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROLES = {
    "bos_token": ("bos", 1),
    "eos_token": ("eos", 2),
    "unk_token": ("unknown", 0),
    "pad_token": ("padding", None),
    "sep_token": ("seperator", None),
    "mask_token": ("mask", None),
}
"""Names in the configuration; names in the keys, and ids that ``llama`` implies."""


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
    makers = _makers()
    model = metadata.get(f"{KEY}model")
    if model is None or not metadata.get(f"{KEY}tokens"):
        missing = "model" if model is None else "tokens"
        return TokenizerFiles(
            notes=(f"the file has no key '{KEY}{missing}': no tokenizer was written",)
        )
    if model not in makers:
        return TokenizerFiles(
            notes=(
                f"the key '{KEY}model' is '{model}', and only {', '.join(makers)} can be made: no "
                "tokenizer was written",
            )
        )
    vocabulary = Vocabulary.of(path, metadata)
    tokenizer, bos = makers[model](vocabulary)
    config = _config(vocabulary, bos=bos)
    _add_special(tokenizer, vocabulary, config)
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2),
    }
    return TokenizerFiles({name: text.encode() for name, text in files.items()}, (), vocabulary)


def _makers() -> dict[str, Callable[[Vocabulary], tuple[Tokenizer, bool]]]:
    """By model: what makes the tokenizer, and says whether a text begins with bos by default."""
    try:
        from frontends.gguf.byte_level import byte_level, character_level, pre_tokenizer
        from frontends.gguf.sentencepiece import sentencepiece
    except ImportError as error:
        raise BadInput(
            f"a GGUF file's tokenizer needs the package 'tokenizers' ({error}); install it: "
            "pip install tokenizers"
        ) from None
    return {
        "gpt2": lambda v: (byte_level(v), pre_tokenizer(v).bos),
        "llama": lambda v: (sentencepiece(v), True),
        "gemma4": lambda v: (character_level(v), True),
    }


def _config(vocabulary: Vocabulary, *, bos: bool) -> dict[str, Any]:
    """Content of ``tokenizer_config.json``: a text decodes to what it was, spaces and all."""
    implied = vocabulary.model == "llama"
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, (name, default) in _ROLES.items():
        number = vocabulary.special(name, default if implied else None)
        if number is not None:
            config[role] = vocabulary.tokens[number]
    for role in ("bos", "eos"):
        asked = vocabulary.flag(f"add_{role}_token", default=bos if role == "bos" else False)
        config[f"add_{role}_token"] = asked and f"{role}_token" in config
    context = vocabulary.metadata.get(
        f"{vocabulary.metadata.get('general.architecture')}.context_length"
    )
    if isinstance(context, int):
        config["model_max_length"] = context
    templates = chat_templates(vocabulary.metadata)
    if templates is not None:
        config["chat_template"] = templates
    return config


def _add_special(tokenizer: Tokenizer, vocabulary: Vocabulary, config: Mapping[str, Any]) -> None:
    """Tokens that are cut out of a text before it is split, and those put around it."""
    from tokenizers import AddedToken
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_tokens([
        AddedToken(text, normalized=False, special=special)
        for text, special in vocabulary.added()
    ])
    first, last = (
        config[f"{role}_token"] if config[f"add_{role}_token"] else None for role in ("bos", "eos")
    )
    around = [text for text in (first, last) if text is not None]
    if around:
        one, two = ([first] if first else [], [last] if last else [])
        tokenizer.post_processor = TemplateProcessing(
            single=[*one, "$A", *two],
            pair=[*one, "$A", *two, *(f"{t}:1" for t in one), "$B:1", *(f"{t}:1" for t in two)],
            special_tokens=[(text, vocabulary.tokens.index(text)) for text in dict.fromkeys(around)],
        )
