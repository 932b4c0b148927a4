"""``rewrite matrix --html``: every cell leads to its reason and to what that rests on."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout

import pytest

from rewriter.cli import main
from rewriter.matrix import matrices
from rewriter.rule import registry
from tests.rewriter.report.pages import Page, accessible


@pytest.fixture(scope="module")
def page() -> str:
    """Of QNN and of OpenVINO's reader."""
    return printed("--ep", "qnn", "--ep", "openvino")


def printed(*words: str) -> str:
    screen = io.StringIO()
    with redirect_stdout(screen):
        assert main(["matrix", "--html", *words]) == 0
    return screen.getvalue()


def test_every_cell_leads_to_a_reason_of_its_own_form(page: str) -> None:
    parts = Page(page)
    ids = [attributes["id"] for _, attributes in parts.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"].removeprefix("#") for link in parts.of("a")]
    assert set(links) <= {*ids}
    found = matrices(registry(), ["qnn", "openvino"])
    known = sum(sum(row is not None for row in line.rows) for one in found for line in one.lines)
    reasons = [link for link in links if re.fullmatch(r"(?:qnn|openvino)-\d+", link)]
    assert len(reasons) == known
    assert set(reasons) == {name for name in ids if re.fullmatch(r"(?:qnn|openvino)-\d+", name)}


def test_a_reason_has_its_evidence(page: str) -> None:
    (row,) = re.findall(
        r"<tr id=\"qnn-\d+\"><th scope=\"row\">IsNaN .*?X dtype float<.*?</tr>", page
    )
    words = " ".join("".join(Page(row).words).split())
    assert "wrong2.3.0-2.7.0" in words
    assert "an infinite element is taken for NaN" in words
    assert re.search(r"measured 2\.7\.0: \S+IsNaN.* -> HTP-WRONG, error 1\.0e\+00 of max", words)


def test_it_can_be_read_and_needs_nothing_else(page: str) -> None:
    accessible(page)
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"(?:href|src)=\"(?!#)", page)
    assert "url(" not in page
    assert not Page(page).of("script")


def test_one_op(page: str) -> None:
    text = printed("--ep", "qnn", "--op", "IsNaN")
    assert len(text) < len(page) / 20
    heads = set(re.findall(r"<th scope=\"row\">([\w:]+)", text))
    assert heads == {"IsNaN"}


def test_one_op_as_json() -> None:
    words = ["matrix", "--json", "--ep", "qnn", "--op", "IsNaN"]
    screen = io.StringIO()
    with redirect_stdout(screen):
        assert main(words) == 0
    (one,) = json.loads(screen.getvalue())["eps"]
    assert {form["op"] for form in one["forms"]} == {"IsNaN"}
