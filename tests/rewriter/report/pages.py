"""Pages of HTML taken apart, and what a person without a mouse or with weak eyes needs of them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

_VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """A page taken apart: tags in order with their attributes, and all of its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]

    def labels(self, tag: str) -> list[str]:
        """The words that each such tag is called by: its own, or those of the ids it names."""
        ids = {attributes["id"] for _, attributes in self.tags if "id" in attributes}
        found = []
        for attributes in self.of(tag):
            named = attributes.get("aria-labelledby", "").split()
            assert set(named) <= ids, named
            found.append(attributes.get("aria-label", "") or " ".join(named))
        return found


def accessible(text: str) -> None:
    """Headings in order, landmarks, names of everything, tables whose cells know their heads."""
    page = Page(text)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper <= higher + 1 for higher, deeper in pairwise(levels))
    assert page.of("html")[0]["lang"] == "en"
    assert len(page.of("main")) == 1
    assert len(page.of("title")) == 1 + len(page.of("svg"))
    assert len(page.of("caption")) == len(page.of("table"))
    assert {cell.get("scope") for cell in page.of("th")} == {"col", "row"}
    rows = text.count("<tr") - len(page.of("thead"))
    assert sum(cell["scope"] == "row" for cell in page.of("th")) == rows
    for tag in ("svg", "section", "nav"):
        assert all(page.labels(tag)), tag
    assert len(page.of("desc")) == len(page.of("svg"))
    first = page.of("a")[0]
    assert first == {"class": "skip", "href": "#main"}
    for box in page.of("div"):
        if box.get("class") == "scroll":
            assert box["tabindex"] == "0"
            assert box["role"] == "region"
            assert box["aria-label"]
    assert not any(int(attributes.get("tabindex", 0)) > 0 for _, attributes in page.tags)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, by the formula of WCAG 2."""
    first, second = sorted((luminance(one), luminance(other)), reverse=True)
    return (first + 0.05) / (second + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    shares = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
