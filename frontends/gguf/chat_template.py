"""Chat templates of a GGUF file: one for ``tokenizer_config.json``, those with names beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_KEY = "tokenizer.chat_template"
_NAME = re.compile(r"[\w-]+")


def chat_template(metadata: Mapping[str, Any]) -> str | None:
    """The template that has no name.

    Args:
        metadata: keys of a file.
    """
    text = metadata.get(_KEY)
    return text if isinstance(text, str) else None


def named_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The others, by the names of files for them.

    The configuration could hold them as a list; onnxruntime-genai (0.18.0) then reads none at all.

    Args:
        metadata: keys of a file; ``tokenizer.chat_template.NAME``.
    """
    names = {key.removeprefix(f"{_KEY}."): text for key, text in metadata.items()}
    return {
        f"chat_template.{name}.jinja": text
        for name, text in names.items()
        if f"{_KEY}.{name}" in metadata and _NAME.fullmatch(name) and isinstance(text, str)
    }
