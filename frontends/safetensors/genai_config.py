"""What the files of a checkpoint say for ``genai_config.json``.

What describes the graphs is added once they are written (:mod:`rewriter.genai`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from frontends.safetensors.families import FAMILIES
from frontends.safetensors.folder import CONFIG, Checkpoint, json_of
from frontends.safetensors.keys import Config
from rewriter.genai.base import genai_base

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
_TYPES = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gpt-oss": "gptoss",
    **{name: name for name in ("gemma", "gemma2", "granite", "llama", "qwen2", "qwen3", "smollm3")},
}
"""What the runtime calls an architecture; it runs the others as ``decoder``, Phi 3 too: under its
own name the cache is computed anew where long rope changes, and a graph of ours has one table.
"""
_NEVER_SAID = re.compile(r".*(pad|reserved|unused).*", re.IGNORECASE)


def genai_config(checkpoint: Checkpoint) -> bytes:
    """The part of a configuration that a checkpoint gives.

    Args:
        checkpoint: whose model can be built.

    Raises:
        BadInput: a file beside the weights is no JSON, or a special token no number.
    """
    top = checkpoint.config
    family = FAMILIES[top["architectures"][0]]
    config = top["text_config"] if family.text else top
    keys = {**family.defaults, **config}
    generation = checkpoint.folder / GENERATION
    sources = [Config(checkpoint.folder / CONFIG, found) for found in (top, config)]
    if generation.is_file():
        sources.insert(0, Config(generation, json_of(generation)))
    bos = next(iter(_ids("bos", sources)), None)
    ends = list(dict.fromkeys(_ids("eos", sources)))
    return genai_base(
        _TYPES.get(family.style, "decoder"),
        context_length=int(keys["max_position_embeddings"]),
        hidden_size=int(keys["hidden_size"]),
        num_attention_heads=int(keys["num_attention_heads"]),
        bos=bos,
        ends=ends,
        pad=_pad(checkpoint, {bos, *ends}, _ids("pad", sources)),
    )


def _ids(role: str, sources: Sequence[Config]) -> list[int]:
    """Ids of a special token, from the first file that has some; -1 is none."""
    key = f"{role}_token_id"
    for source in sources:
        found = source.get(key, [])
        listed = found if isinstance(found, list) else [found]
        if not all(type(one) is int for one in listed):
            raise source.wrong(key, "neither the number of a token nor a list of them")
        ids = [one for one in listed if one >= 0]
        if ids:
            return ids
    return []


def _pad(checkpoint: Checkpoint, said: set[int | None], stated: list[int]) -> int | None:
    """A token that no prompt holds: the runtime takes the first one for the prompt's end."""
    for one in (*stated, *_spare(checkpoint)):
        if one not in said:
            return one
    return stated[0] if stated else None


def _spare(checkpoint: Checkpoint) -> Iterator[int]:
    """Special tokens whose name says that no text has them."""
    path = checkpoint.folder / TOKENIZER
    added = json_of(path).get("added_tokens", []) if path.is_file() else []
    for token in added if isinstance(added, list) else []:
        known = isinstance(token, dict) and type(token.get("id")) is int
        if known and token.get("special") and _NEVER_SAID.fullmatch(str(token.get("content"))):
            yield token["id"]
