"""The vocabulary of a GGUF file: what ``tokenizer.ggml.*`` says, checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from rewriter.errors import BadInput

KEY = "tokenizer.ggml."

_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\uff5cend▁of▁sentence\uff5c>", "[e~[",
})  # fmt: skip
"""Texts by which llama.cpp knows a token that ends an answer, whatever the keys say."""


_IMPLIED = {"llama": {"bos": 1, "eos": 2, "unknown": 0}}
"""Ids of special tokens where no key says them, by model."""


class Kind(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Tokens and what is known of them.

    Attributes:
        path: of the file, for messages.
        model: ``gpt2``, ``llama``, ...
        tokens: texts, by id, each once.
        kinds: of the tokens.
        metadata: all keys of the file.
    """

    path: Path
    model: str
    tokens: list[str]
    kinds: list[int]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path, metadata: Mapping[str, Any]) -> Vocabulary:
        """The vocabulary of a file that has the keys ``model`` and ``tokens``.

        Raises:
            BadInput: a key is damaged, or two tokens have the same text.
        """
        tokens = listed(path, metadata, "tokens", str)
        kinds = listed(path, metadata, "token_type", int, len(tokens)) or [1] * len(tokens)
        # Two empty texts would be one token; llama.cpp names them like this.
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
        ids = {text: i for i, text in enumerate(tokens)}
        if len(ids) != len(tokens):
            i, text = next((i, text) for i, text in enumerate(tokens) if ids[text] != i)
            raise BadInput(
                f"{path}: the key '{KEY}tokens' holds {text!r} as {i} and as {ids[text]}; convert "
                "the model again"
            )
        return cls(path, str(metadata[f"{KEY}model"]), tokens, kinds, metadata)

    def flag(self, name: str, default: bool) -> bool:
        """A key that says yes or no."""
        return bool(self.metadata.get(KEY + name, default))

    def special(self, name: str) -> int | None:
        """Id of a special token (``bos``, ``eos``, ``padding``, ...); ``None`` if there is none."""
        implied = _IMPLIED.get(self.model, {}).get(name)
        value = self.metadata.get(f"{KEY}{name}_token_id", implied)
        return value if type(value) is int and 0 <= value < len(self.tokens) else None

    def ends(self) -> list[int]:
        """Ids of all tokens that end an answer, the one the file names first."""
        named = [self.special(name) for name in ("eos", "eot", "eom")]
        found = [i for i in named if i is not None]
        texts = {text for text in self.tokens if text in _ENDS}
        if texts >= {"<|return|>", "<|call|>"} or texts >= {"<|flush|>", "<|calls|>"}:
            texts -= {"<|end|>"}
        if "<|tool_response>" in texts:
            texts -= {"</s>"}
        found += [i for i, text in enumerate(self.tokens) if text in texts]
        return list(dict.fromkeys(found))

    def added(self) -> list[tuple[str, bool]]:
        """Tokens found in a text before it is split, and whether they control the model."""
        ends = set(self.ends())
        control = {Kind.CONTROL, Kind.UNKNOWN}
        return [
            (text, kind in control or i in ends)
            for i, (text, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in control or kind == Kind.USER_DEFINED or i in ends
        ]


def listed(
    path: Path,
    metadata: Mapping[str, Any],
    name: str,
    kind: type | tuple[type, ...],
    length: int | None = None,
) -> list[Any]:
    """A list of the vocabulary; empty if the file has no such key.

    Raises:
        BadInput: it is no list, holds other things, or is not of the length it should have.
    """
    found = metadata.get(KEY + name, [])
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        raise BadInput(f"{path}: the key '{KEY}{name}' is damaged; download it again")
    if found and length is not None and len(found) != length:
        raise BadInput(
            f"{path}: the key '{KEY}{name}' holds {len(found)} values for {length} tokens; convert "
            "the model again"
        )
    return found
