"""How far units are from ONNX Runtime's CPU on the installed HTP; tests/sweeps has the others."""

from __future__ import annotations

from pathlib import Path

from rewriter.runtime.versions import installed
from tests.htp import needs_qnn
from tests.units import check_units

pytestmark = needs_qnn


def test_units_are_as_near_as_was_measured(tmp_path: Path) -> None:
    check_units(installed("qnn") or "", tmp_path)
