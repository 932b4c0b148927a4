"""Where devices and the table part: what others refuse there, and what the page says of it."""

from __future__ import annotations

import pytest

from capabilities import Verdict
from rewriter.probe.devices import known_devices, markdown, partings

EQUAL = "NPU: compiled in none of 609 models"
"""Of bool, and of integers of 8 and 16 bits; ``devices/openvino-npu.tsv``."""


def test_what_the_reader_takes_and_the_device_does_not() -> None:
    found = next(one for one in partings("openvino", "NPU") if one.op == "Equal")
    assert found.table == (Verdict.LEGAL, "any")
    assert found.device == (Verdict.ILLEGAL, EQUAL)
    assert "bool" in found.dtypes
    assert "f32" not in found.dtypes


@pytest.mark.parametrize("ep", ["qnn", "openvino"])
def test_they_part_on_what_runs_not_on_numbers(ep: str) -> None:
    for device in known_devices(ep):
        for one in partings(ep, device):
            assert {one.table[0], one.device[0]} == {Verdict.LEGAL, Verdict.ILLEGAL}, one


def test_devices_that_something_is_known_of() -> None:
    assert list(known_devices("openvino")) == ["GPU", "NPU"]
    assert list(known_devices("qnn")) == ["NPU"]
    assert list(known_devices("ort-cpu")) == []


def test_the_page_is_about_the_ops_that_are_asked_for() -> None:
    page = markdown("openvino", "NPU", {"Equal"}).splitlines()
    rows = [line for line in page if line.startswith("| ")]
    assert page[0] == "### openvino: where the NPU and the table part"
    assert [row.split(" | ")[0] for row in rows] == ["| op", "| ---", "| Equal"]
    assert f"| legal [any] | {EQUAL} |" in rows[-1]
