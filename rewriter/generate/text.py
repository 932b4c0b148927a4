"""Between text and token ids, by the tokenizer that lies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "tokenizer.json"
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Text:
    """The tokenizer of a folder.

    Raises:
        BadInput: the folder has none, or it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        file = folder / NAME
        if not file.is_file():
            raise BadInput(
                f"{folder}: holds no {NAME}, so text cannot be read; give token ids with --ids"
            )
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:
            raise BadInput(f"{file}: is no tokenizer that can be read ({error})") from None

    def ids(self, text: str) -> list[int]:
        """Ids of a text, with the special tokens that the tokenizer adds by itself.

        Raises:
            BadInput: the text is empty, no UTF-8, or has no token at all.
        """
        if not text.isascii() and _broken(text):
            raise BadInput(
                "the prompt is no UTF-8; write it so (is LC_ALL=C set?), or give ids with --ids"
            )
        found: list[int] = self._tokenizer.encode(text).ids
        if not text or not found:  # a tokenizer may begin every text with a token
            raise BadInput("the prompt is empty; give some text, or token ids with --ids")
        return found

    def after(self, prompt: Sequence[int]) -> Stream:
        """The text of tokens that follow a prompt, as they come."""
        return Stream(self._tokenizer, prompt)


def _broken(text: str) -> bool:
    """Whether it holds bytes that Python could not read from the command line."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


class Stream:
    """The text of tokens as they come.

    Tokens may be parts of a character, and what one says may depend on the one before it; so text
    comes out when it ends in whole characters, and is what was added to the text of some tokens
    before.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt)
        self._from = self._next = 0  # a prompt may end within a character
        self._shown = self._text().rstrip(_BROKEN)

    def add(self, token: int) -> str:
        """The text that a token completes; it may be empty."""
        self._ids.append(token)
        text = self._text()
        new = text[len(self._shown) :]
        if not new or text.endswith(_BROKEN):
            return ""
        # text before the last whole characters is not decoded again
        self._from, self._next = self._next, len(self._ids)
        self._shown = self._text()
        return new

    def end(self) -> str:
        """What is left, with a replacement for bytes that never became a character."""
        return self._text()[len(self._shown) :]

    def _text(self) -> str:
        kept = self._ids[self._from :]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=True)
        return text
