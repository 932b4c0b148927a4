"""Every real decoder with a cache of fixed size, placed and driven against its original.

Slow, because the emulator computes each: ``pytest -m slow tests/sweeps/test_static_pairs.py``
(10 CPU-minutes). It prints a line for each model. One of a kind is in ``tests/shared/test_run.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.htp import needs_qnn
from tests.shared import needs_shared, static_pairs

pytestmark = [needs_shared, needs_qnn, pytest.mark.slow]


@pytest.mark.parametrize("file", static_pairs.EVERY)
def test_placed_whole_and_the_same_tokens(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = static_pairs.check(file, tmp_path, report=tmp_path / "report.json")
    with capsys.disabled():
        sys.stdout.write(f"\n{file}: {said}")
