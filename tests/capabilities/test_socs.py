from __future__ import annotations

import pytest

from capabilities.socs import UnknownSoc, soc, socs

MEASURED = ("2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0")

# The float16 ids of the project's first measurements, made before this table (2.7.0).
FLOAT16 = (
    "36 39 41 42 43 52 53 57 60 62 63 66 67 69 72 75 77 82 87 88 89 90 92 94 97 99 103 104 105 "
    "109 112 113 114 115 117 119 120 123"
)


def test_the_table_is_sorted_and_names_are_unique() -> None:
    found = socs("qnn")
    assert [s.id for s in found] == sorted({s.id for s in found})
    assert len({s.chip.lower() for s in found}) == len(found)
    assert not any(s.chip.isdecimal() for s in found)


def test_it_agrees_with_what_was_measured_before() -> None:
    assert [s.id for s in socs("qnn") if s.float16] == [int(text) for text in FLOAT16.split()]


# What Qualcomm's own code for executorch says (backends/qualcomm/serialization/qc_schema.py).
@pytest.mark.parametrize(
    ("chip", "number", "arch", "vtcm"),
    [
        ("SM8350", 30, 68, 4),
        ("SM8450", 36, 69, 8),
        ("SA8295", 39, 68, 8),
        ("SM8550", 43, 73, 8),
        ("SSG2115P", 46, 73, 2),
        ("SXR2230P", 53, 69, 8),
        ("SM8650", 57, 75, 8),
        ("SM8750", 69, 79, 8),
        ("SA8797", 72, 81, 16),
        ("SXR2330P", 75, 79, 8),
        ("SM8850", 87, 81, 8),
        ("SAR2230P", 95, 81, 4),
        ("SM8845", 97, 81, 8),
    ],
)
def test_it_agrees_with_the_vendor(chip: str, number: int, arch: int, vtcm: int) -> None:
    found = soc("qnn", chip)
    assert (found.id, found.htp_arch, found.vtcm_mb) == (number, arch, vtcm)
    assert soc("qnn", str(number)) == found


@pytest.mark.parametrize("version", MEASURED)
def test_every_version_knows_the_usual_ones(version: str) -> None:
    for chip in ("SC8380XP", "SM8550", "SM8650", "SM8750", "SM8850", "SC8480XP"):
        assert soc("qnn", chip.lower(), version).chip == chip


def test_a_soc_of_a_later_version() -> None:
    assert soc("qnn", "119", "2.5.0").chip == "IQX5121"
    with pytest.raises(UnknownSoc, match=r"IQX5121 \(119, v73\) is known to qnn >=2\.5, not"):
        soc("qnn", "119", "2.4.0")


@pytest.mark.parametrize("name", ["0", "1", "14", "999", "", "SM", "-1", "60.0"])
def test_no_such_soc(name: str) -> None:
    with pytest.raises(UnknownSoc, match=r"knows no SoC .*60 SC8380XP"):
        soc("qnn", name)


def test_other_eps_have_none() -> None:
    assert socs("openvino") == ()
    with pytest.raises(UnknownSoc, match="openvino is not compiled for a SoC"):
        soc("openvino", "60")
