"""What the keys of a GGUF file say for ``genai_config.json``.

What describes the graphs is added once they are written (:mod:`rewriter.genai`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from frontends.gguf.vocabulary import Kind, Vocabulary
from rewriter.genai.base import genai_base

_TYPES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "granite": "granite",
    "smollm3": "smollm3",
    "gpt-oss": "gptoss",
}
"""What the runtime calls an architecture; it runs the others as ``decoder``.

``phi3`` is among those: under its own name the runtime computes the cache anew where the tables of
long rope change, and a graph of ours has one table.
"""

_NEVER_SAID = re.compile(r".*(pad|reserved|unused).*", re.IGNORECASE)


def genai_config(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> bytes:
    """The part of a configuration that a file gives.

    Args:
        metadata: keys of the GGUF file.
        vocabulary: of the file.
    """
    arch = str(metadata.get("general.architecture"))
    heads = metadata[f"{arch}.attention.head_count"]
    return genai_base(
        _TYPES.get(arch, "decoder"),
        context_length=int(metadata[f"{arch}.context_length"]),
        hidden_size=int(metadata[f"{arch}.embedding_length"]),
        num_attention_heads=int(max(heads) if isinstance(heads, list) else heads),
        bos=vocabulary.special("bos"),
        ends=vocabulary.ends(),
        pad=_pad(vocabulary),
    )


def _pad(vocabulary: Vocabulary) -> int | None:
    """A token that no prompt holds: the runtime takes the first one for the prompt's end."""
    said = {vocabulary.special("bos"), *vocabulary.ends()}
    pad = vocabulary.special("padding")
    if pad is not None and pad not in said:
        return pad
    pairs = enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
    spare = (
        i
        for i, (text, kind) in pairs
        if i not in said
        and (kind == Kind.UNUSED or (kind == Kind.CONTROL and _NEVER_SAID.fullmatch(text)))
    )
    return next(spare, pad)
