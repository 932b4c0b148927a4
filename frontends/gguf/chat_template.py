"""Chat templates of a GGUF file, as ``tokenizer_config.json`` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEY = "tokenizer.chat_template"


def chat_templates(metadata: Mapping[str, Any]) -> str | list[dict[str, str]] | None:
    """The template; where others have names, all as a list, the unnamed one as ``default``.

    Args:
        metadata: keys of a file; ``tokenizer.chat_template`` and ``tokenizer.chat_template.NAME``.
    """
    default = metadata.get(_KEY)
    named = {
        key.removeprefix(f"{_KEY}."): text
        for key, text in metadata.items()
        if key.startswith(f"{_KEY}.") and isinstance(text, str)
    }
    if not named:
        return default if isinstance(default, str) else None
    if isinstance(default, str):
        named = {"default": default, **named}
    return [{"name": name, "template": text} for name, text in named.items()]
