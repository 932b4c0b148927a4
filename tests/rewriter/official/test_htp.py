"""Each official node test, lowered for the installed QNN, runs whole and right on HTP."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from capabilities import target
from tests import htp, official, official_htp


@htp.needs_qnn
@pytest.mark.parametrize("op", official.OPS)
def test_placed_whole(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = official_htp.run(op, target("qnn", "2.7.0"), tmp_path)
    with capsys.disabled():
        sys.stdout.write(f"\n{op} on {found}")
    total = [case for case in official.cases() if case.op == op]
    assert not found.faults
    assert found.refused == sum(case.bfloat16 for case in total)
    assert found.placed == len(total) - found.refused
    assert op == "TensorScatter" or found.worst > htp.LEAST  # which computes nothing
