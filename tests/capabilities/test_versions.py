from __future__ import annotations

import pytest

from capabilities.versions import VersionRange, parse_version


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", ["0.1", "2.7.0"], []),
        ("2.7", ["2.7.0", "2.7.3"], ["2.6.9", "2.8.0", "2.70.0"]),
        ("2.7.0", ["2.7.0"], ["2.7.1", "2.7"]),
        (">=2.4", ["2.4.0", "2.4", "3.0"], ["2.3.9"]),
        (">2.4", ["2.4.1"], ["2.4.0", "2.4"]),
        ("<=2.4", ["2.4.0", "1.9"], ["2.4.1"]),
        ("<2.4", ["2.3.9"], ["2.4.0", "2.4"]),
        (">=2.4,<2.7", ["2.4.0", "2.6.9"], ["2.3.0", "2.7.0"]),
        (">=2.4 , <2.7", ["2.5.0"], ["2.7.0"]),
        ("2.3 | >=2.6", ["2.3.1", "2.6.0", "2.7.0"], ["2.4.0", "2.5.0"]),
        ("<2.10", ["2.9.0"], ["2.10.0", "2.11.0"]),
    ],
)
def test_a_range_holds(text: str, inside: list[str], outside: list[str]) -> None:
    versions = VersionRange(text)
    assert all(parse_version(v) in versions for v in inside)
    assert not any(parse_version(v) in versions for v in outside)


@pytest.mark.parametrize("text", ["", "new", "2.x", "=>2.4", ">=2.4,", "2.3 |", "2.3-2.5", "==2.3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version range"):
        VersionRange(text)


@pytest.mark.parametrize("text", ["", "v2", "2.7.0rc1", "2.", "2..7", "latest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        parse_version(text)


def test_versions_compare_as_numbers() -> None:
    assert parse_version("2.10.0") > parse_version("2.9.9")
