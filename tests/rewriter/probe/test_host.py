"""Products of 8-bit codes on a processor that saturates them: the numbers say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities import target
from rewriter.probe import host
from rewriter.probe.case import every_case
from rewriter.probe.evidence import Tables, write
from rewriter.probe.findings import UNKNOWN, Finding, judged
from rewriter.probe.verdict import Measured

OLD = target("openvino", "2025.0.0")
CPUS = {
    "avx2 only": ("flags : fpu avx avx2 fma", True),
    "vnni": ("flags : fpu avx2 avx512_vnni", False),
    "avx_vnni": ("flags : fpu avx2 avx_vnni", False),
    "amx": ("flags : fpu amx_tile amx_int8", False),
}


@pytest.mark.parametrize(("said", "expected"), CPUS.values(), ids=CPUS)
def test_what_linux_tells_of_the_processor(
    said: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_more: said)
    assert host.saturates.__wrapped__() is expected


def test_where_linux_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_args: object, **_more: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", none)
    assert host.saturates.__wrapped__() is False


def test_only_products_of_stored_and_fed_codes_are_meant() -> None:
    meant = {case.name for case in every_case() if host.multiplies_codes(case.built().facts(OLD))}
    assert "P/DequantizeLinear|int8 per channel, zero point 0, by uint8|f32" in meant
    assert "P/MatMulInteger|zero points|int32" in meant
    assert not any("by floats" in name or "by uint16" in name for name in meant)
    assert not any("int4" in name for name in meant)


def test_a_record_of_another_processor_stays(tmp_path: Path) -> None:
    tables = Tables(tmp_path, "openvino")
    case = next(case for case in every_case() if case.op == "MatMulInteger")
    for path in (tables.rows, tables.evidence):
        path.parent.mkdir()
    columns = "op\tform\tverdict\tversions\twhy\tevidence"
    tables.rows.write_text(f"{columns}\nMatMulInteger\tany\tlegal\t*\t\tmeasured:{case.name}\n")
    record = f"{case.name}\t2025.0.0\tOK\t0\t0\t"
    tables.evidence.write_text(
        f"record\tversion\tverdict\tmax_abs\tmax_rel\tnote\n{record}\n", encoding="utf-8"
    )
    here = Finding(case, judged(case.built(), OLD), Measured("OK-NOREF"))
    assert here.state == UNKNOWN
    write([here], "2025.0.0", tables)
    assert record in tables.evidence.read_text(encoding="utf-8").splitlines()
