"""Names come from files: what is no text must not reach a terminal, where it could do anything."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, line ends too, spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
