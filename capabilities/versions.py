"""Version numbers and ranges: ``2.7.0``, ``>=2.4,<2.7``, ``2.3 | >=2.6`` and ``*``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

Version = tuple[int, ...]

_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
}
_TERM = re.compile(r"(>=|<=|<|>)?\s*(\d+(?:\.\d+)*)")


def parse_version(text: str) -> Version:
    """``"2.7.0"`` as ``(2, 7, 0)``.

    Raises:
        ValueError: the text is not numbers joined by dots.
    """
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise ValueError(f"'{text}' is not a version: numbers joined by dots, like 2.7.0")
    return tuple(int(part) for part in text.split("."))


def _same_series(version: Version, series: Version) -> bool:
    return version[: len(series)] == series


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A set of versions; ``text`` is what the table says, and what is printed.

    ``|`` joins alternatives, ``,`` joins conditions; a bare number means that series
    (``2.3`` holds 2.3.0 and 2.3.1); ``*`` is every version.
    """

    text: str

    def __post_init__(self) -> None:
        for alternative in self.text.split("|"):
            for term in alternative.split(","):
                if term.strip() != "*" and not _TERM.fullmatch(term.strip()):
                    raise ValueError(f"'{term.strip()}' in '{self.text}' is not a version range")

    def __contains__(self, version: Version) -> bool:
        return any(
            all(self._holds(term.strip(), version) for term in alternative.split(","))
            for alternative in self.text.split("|")
        )

    @staticmethod
    def _holds(term: str, version: Version) -> bool:
        if term == "*":
            return True
        match = _TERM.fullmatch(term)
        assert match is not None  # checked when the range was made
        number = parse_version(match[2])
        if match[1] is None:
            return _same_series(version, number)
        width = max(len(number), len(version))
        pad = (0,) * width
        return _COMPARE[match[1]]((version + pad)[:width], (number + pad)[:width])
