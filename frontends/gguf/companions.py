"""What goes with the model of a GGUF file: tokenizer, chat template, runtime configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frontends.gguf.genai_config import genai_config
from frontends.gguf.pre_tokenizers import pre_tokenizer
from frontends.gguf.tokenizer import TokenizerFiles, tokenizer_files
from frontends.gguf.vocabulary import KEY, Vocabulary
from rewriter.source import Companions, GenaiBase


def companions_of(
    path: Path, metadata: Mapping[str, Any], tokenizer: TokenizerFiles | None = None
) -> Companions:
    """All files of a model.

    Args:
        path: of the GGUF file, for messages.
        metadata: its keys.
        tokenizer: what was made of it before; large vocabularies take seconds.

    Raises:
        BadInput: the tokenizer is damaged, or splits a text in a way that is not known.
    """
    tokenizer = tokenizer or tokenizer_files(path, metadata)
    if tokenizer.vocabulary is None:
        return Companions(tokenizer.files, tokenizer.notes)
    notes = []
    pre = metadata.get(f"{KEY}pre", "default")
    if not _split_by_genai(tokenizer.vocabulary):
        notes.append(
            f"onnxruntime-genai 0.18.0 does not split a text as '{KEY}pre' = '{pre}' says; feed it "
            "the ids that the package 'tokenizers' makes of tokenizer.json"
        )
    config = GenaiBase(genai_config(metadata, tokenizer.vocabulary), tuple(notes))
    return Companions(tokenizer.files, tokenizer.notes, config)


def _split_by_genai(vocabulary: Vocabulary) -> bool:
    return vocabulary.model != "gpt2" or pre_tokenizer(vocabulary).genai
