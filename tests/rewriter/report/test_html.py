"""The HTML report: whole, without the network, readable without a mouse, and safe."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from capabilities import target
from rewriter.cli import main
from rewriter.node_states import NodeState, Place
from rewriter.outcome import GraphOutcome, Outcome, Parity
from rewriter.parity.compare import Error
from rewriter.parity.model import ModelParity
from rewriter.parity.outputs import OutputParity
from rewriter.passes.fix_dims import Dims
from rewriter.record import Report, StuckNode
from rewriter.report.html import html_page
from tests.decoders import FIXTURE

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


def outcome(states: list[NodeState], parity: Parity | None = None) -> Outcome:
    """A run over one graph of these nodes."""
    report = Report(target("qnn", "2.7.0"))
    report.ops_before.update({"Attention": 1})
    report.ops_after.update(state.op for state in states)
    graph = GraphOutcome("model", "model.onnx", report, Dims(), parity=parity)
    graph.nodes = states
    return Outcome("m.onnx", report.target, graphs=[graph])


def layers(count: int, where: Place = Place.EP) -> list[NodeState]:
    """A chain of layers of 30 nodes each."""
    names = [f"layers.{layer}/{n}" for layer in range(count) for n in range(30)]
    return [
        NodeState(
            name, f"Op{at % 30}", where, "any", "because", "rule", "node", (at - 1,) if at else ()
        )
        for at, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a real run, without a runtime."""
    folder = tmp_path_factory.mktemp("html")
    dims = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=8"]
    page = folder / "r.html"
    words = [str(FIXTURE / "model.onnx"), "--ep", "qnn@2.7.0", *dims, "--no-place"]
    assert main([*words, "-o", str(folder / "out"), "--report", str(page)]) == 0
    return page.read_text(encoding="utf-8")


def test_a_real_run_is_told(written: str) -> None:
    words = " ".join(" ".join(Page(written).words).split())
    assert "28 nodes before, 107 after" in words
    assert "attention_primitives" in words
    assert "whole model: present.1.value" in words
    assert "11 4 bits, blocks of 32" in words
    assert "Every node is legal, parity is good (exit 0)." in words
    assert "107 nodes legal by the table" in words


def test_it_needs_nothing_else(written: str) -> None:
    page = Page(written)
    assert not page.of("script")
    assert not page.of("link")
    assert not page.of("img")
    assert "@import" not in written
    assert "url(" not in written
    assert not re.search(r"(?:href|src)=\"(?!#)", written)


def test_every_box_leads_to_its_line(written: str) -> None:
    page = Page(written)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"] for link in page.of("a")]
    assert len(links) > 50
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_headings_tables_and_pictures_have_their_words(written: str) -> None:
    page = Page(written)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper <= higher + 1 for higher, deeper in pairwise(levels))
    assert page.of("html")[0]["lang"] == "en"
    assert len(page.of("caption")) == len(page.of("table"))
    assert all(cell.get("scope") for cell in page.of("th"))
    assert all("aria-label" in picture for picture in page.of("svg"))
    assert all("aria-label" in link for link in page.of("a"))
    (region,) = (box for box in page.of("div") if box.get("class") == "scroll")
    assert region["tabindex"] == "0"


def test_a_name_is_text_and_never_markup() -> None:
    evil = '<script>alert("1")</script>\x1b[31m'
    run = outcome([NodeState(evil, "Add", Place.CPU, "any", evil, "", evil, ())])
    run.graphs[0].report.stuck.append(StuckNode(evil, "Add", "any", evil, ()))
    run.model = evil
    text = html_page(run)
    assert "<script" not in text
    assert "\x1b" not in text
    assert evil.replace("\x1b", "\\x1b") in "".join(Page(text).words)


def test_35_layers_are_drawn_once_and_the_page_stays_small() -> None:
    run = outcome(layers(35))
    text = html_page(run)
    page = Page(text)
    assert "30 nodes repeat 35 times" in " ".join("".join(page.words).split())
    assert len(page.of("rect")) == 30
    assert len(text) < 100_000


def test_a_graph_without_end_stays_below_2_mb() -> None:
    states = [
        NodeState(
            f"node {n}" * 3, f"Op{n % 70}", Place.EP, "any", f"why {n} " * 12, "rule", "node", ()
        )
        for n in range(9000)
    ]
    text = html_page(outcome(states))
    assert "8000 more nodes are not drawn" in text
    assert len(text.encode()) < 2_000_000


def test_errors_are_plotted_by_output() -> None:
    def output(name: str, error: float) -> OutputParity:
        return OutputParity(name, Error(error, error, error, error), 1e-4, ok=True)

    outputs = (output("logits", 1e-6), output("present.0.key", 0.0))
    model = ModelParity(outputs, True, ("seed 0",), "settings", None)
    parity = Parity(model=model, device=(output("logits", 1e-2),))
    page = Page(html_page(outcome(layers(1), parity)))
    assert len(page.of("circle")) == 2
    heights = [float(dot["cy"]) for dot in page.of("circle")]
    assert heights[0] < heights[1]
    assert "1e-2" in page.words


def test_colours_have_contrast_in_both_modes() -> None:
    """WCAG AA: 4.5 to 1 for text on what it stands on."""
    style = html_page(outcome([]))
    style = style[style.index("<style>") : style.index("</style>")]
    light, dark = re.findall(r":root \{([^}]*)\}", style)
    first = dict(re.findall(r"--(\w+): (#\w+)", light))
    for colours in (first, first | dict(re.findall(r"--(\w+): (#\w+)", dark))):
        for text in ("ink", "soft", "good", "bad", "warn", "first", "second"):
            assert contrast(colours[text], colours["back"]) >= 4.5, (text, colours)
        for box in ("ep", "legal", "unknown", "cpu", "panel"):
            assert contrast(colours["ink"], colours[box]) >= 4.5, (box, colours)


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
