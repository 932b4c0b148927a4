"""What goes with a checkpoint: tokenizer, chat template, configuration."""

from __future__ import annotations

import re

from frontends.safetensors.folder import Checkpoint
from frontends.safetensors.genai_config import genai_config
from rewriter.source import Companions, GenaiBase

_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab"
    r"|chat_template|(pre|video_pre)?processor_config)\.json"
    r"|vocab\.txt|merges\.txt|.*\.jinja|.*tokenizer.*\.model|.*\.tiktoken"
)
"""Not every file with such a name: other tools leave theirs beside the weights."""


def companions_of(checkpoint: Checkpoint) -> Companions:
    """All files that belong to a model, as they lie beside its weights.

    Args:
        checkpoint: whose model can be built.

    Raises:
        BadInput: one of them is no JSON.
    """
    beside = sorted(path for path in checkpoint.folder.iterdir() if path.is_file())
    files = {path.name: path for path in beside if _FILES.fullmatch(path.name)}
    return Companions(files, genai=GenaiBase(genai_config(checkpoint)))
