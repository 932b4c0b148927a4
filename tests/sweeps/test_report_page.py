"""The report of 35 layers in a real browser: it opens at once, and fits phone, dark and paper.

Needs Debian's packages ``chromium`` and ``chromium-driver``; ``REPORT_PICTURES`` names a folder
that keeps the screenshots.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import onnx_ir as ir
import pytest

from rewriter.cli import main
from tests.decoders import Decoder, decoder
from tests.htp import needs_qnn
from tests.rewriter.report.pages import contrast
from tests.sweeps.browser import Browser, browser, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing()),
        reason=f"needs {', '.join(missing())}: apt-get install chromium chromium-driver",
    ),
    needs_qnn,
]

LAYERS = 35
SIZES = {"desktop": (1200, 900), "phone": (390, 844), "paper": (794, 1123)}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with everything: parity on the device, and placement."""
    folder = tmp_path_factory.mktemp("page")
    ir.save(decoder(Decoder(layers=LAYERS)), folder / "model.onnx")
    words = [str(folder / "model.onnx"), "--ep", "qnn", "--parity", "device"]
    dims = ["--dim=batch=1", "--dim=seq=1", "--dim=past=8"]
    report = folder / "r.html"
    assert main([*words, *dims, "-o", str(folder / "o"), "--report", str(report)]) == 0
    return report


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    """One browser for all."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def test_it_opens_in_under_a_second(
    page: Path, window: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    assert page.stat().st_size < 2_000_000
    window.open(page)  # the first one starts the renderer
    window.emulate(*SIZES["desktop"])
    times = []
    for _ in range(3):
        window.open(page)
        entry = "performance.getEntriesByType('navigation')[0]"
        times.append(float(window.run(f"return {entry}.loadEventEnd - {entry}.startTime")))
    with capsys.disabled():
        sys.stdout.write(f"{page.stat().st_size:,} bytes, loaded in {min(times):.0f} ms\n")
    assert 0 < min(times) < 1000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_runs_out_of_the_page(
    size: str, scheme: str, page: Path, window: Browser, tmp_path: Path
) -> None:
    media = "print" if size == "paper" else ""
    window.emulate(*SIZES[size], scheme, media)
    window.open(page)
    wide = window.run("return document.documentElement.scrollWidth")
    assert wide <= SIZES[size][0]
    if media:  # ink is dear
        behind = window.run("return getComputedStyle(document.body).backgroundColor")
        assert behind == "rgb(255, 255, 255)"
    kept = os.environ.get("REPORT_PICTURES")
    window.picture((Path(kept) if kept else tmp_path) / f"{size}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(
    scheme: str, page: Path, window: Browser
) -> None:
    """WCAG AA on the colours that the browser has computed."""
    window.emulate(*SIZES["desktop"], scheme)
    window.open(page)
    pairs = window.run(_COLOURS)
    assert len(pairs) >= 5
    for text, behind in pairs:
        assert contrast(_hex(text), _hex(behind)) >= 4.5, (text, behind)


_COLOURS = """
const found = {};
const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (words.nextNode()) {
  const own = words.currentNode.parentElement;
  if (!words.currentNode.data.trim() || own.closest('title, desc')) continue;
  const style = getComputedStyle(own), svg = own.closest('svg');
  const text = svg ? style.fill : style.color;
  let behind = '';
  const box = svg && own.previousElementSibling;
  if (box && box.tagName === 'rect') behind = getComputedStyle(box).fill;
  for (let e = own; !behind && e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!colour.endsWith(', 0)')) behind = colour;
  }
  found[text + '/' + behind] = [text, behind];
}
return Object.values(found);
"""


def _hex(colour: str) -> str:
    """``rgb(1, 2, 3)`` as ``#010203``."""
    numbers = colour.partition("(")[2].rstrip(")").split(",")
    return "#" + "".join(f"{int(number):02x}" for number in numbers[:3])


def test_the_keyboard_goes_from_box_to_box(page: Path, window: Browser) -> None:
    window.emulate(*SIZES["desktop"])
    window.open(page)
    seen = [window.tab() for _ in range(5)]
    assert seen == ["A#main", "DIV", "a#g1n0", "a#g1n1", "a#g1n2"]
