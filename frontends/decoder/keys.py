"""Numbers of a checkpoint's configuration, asked by key: what is missing or wrong is named."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from rewriter.errors import BadInput

_MOST = 1 << 31
"""What no size of a model reaches."""


class Keys(ABC):
    """Keys and values of one file.

    Attributes:
        path: of the file, for messages.
        advice: what to do where a key is missing.
    """

    path: Path
    advice = "download the model again"

    @abstractmethod
    def get(self, name: str, default: Any = None) -> Any:
        """A value, or what stands for it."""

    @abstractmethod
    def full(self, name: str) -> str:
        """A key as it stands in the file."""

    def needed(self, name: str) -> Any:
        """A value that has to be there.

        Raises:
            BadInput: it is not.
        """
        value = self.get(name)
        if value is None:
            raise BadInput(f"{self.path}: the key '{self.full(name)}' is missing; {self.advice}")
        return value

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number that has to be there unless there is a default.

        Raises:
            BadInput: it is missing, or no number, or less than it can be.
        """
        value = self.needed(name) if default is None else self.get(name, default)
        return self.whole(name, value, least)

    def whole(self, name: str, value: Any, least: int) -> int:
        """A value of a key as a whole number.

        Raises:
            BadInput: it is none, or less than it can be.
        """
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MOST:
            raise self.wrong(name, f"no whole number from {least} to {_MOST - 1}", value)
        return value

    def number(self, name: str, default: float | None = None, *, above: float = -math.inf) -> float:
        """A number that has to be there unless there is a default.

        Raises:
            BadInput: it is missing, or no finite number, or not above what it has to be.
        """
        value = self.needed(name) if default is None else self.get(name, default)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not above < value < math.inf:
            least = f" above {above:g}" if math.isfinite(above) else ""
            raise self.wrong(name, f"no number{least}")
        return float(value)

    def wrong(self, name: str, words: str, value: Any = None, *, again: bool = True) -> BadInput:
        """What to raise for a key with a value that it cannot have.

        Args:
            name: of the key.
            words: what is wrong with it.
            value: what it has, where that is not all of it.
            again: the file may be damaged; otherwise only another version can read it.
        """
        held = self.get(name) if value is None else value
        last = f"; correct it, or {self.advice}" if again else ""
        return BadInput(f"{self.path}: the key '{self.full(name)}' is {short(held)}, {words}{last}")


def short(value: Any) -> str:
    """A value in a message."""
    text = repr(value)
    return text if len(text) < 40 else f"{text[:37]}..."
