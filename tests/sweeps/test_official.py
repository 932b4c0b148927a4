"""The official node tests on every other measured QNN, each in an environment of its own.

Slow for the same reason as :mod:`tests.sweeps.test_other_versions`, whose environments it uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from capabilities import target
from tests import htp, official, official_htp
from tests.sweeps.environments import PACKAGES, python_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("op", official.OPS)
@pytest.mark.parametrize("ep", [name for name in PACKAGES if name.startswith("qnn@")])
def test_placed_whole(
    ep: str,
    op: str,
    environments: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = official_htp.run(op, target(ep), tmp_path, python_of(environments, ep))
    with capsys.disabled():
        sys.stdout.write(f"\n{op} on {found}")
    total = [case for case in official.cases() if case.op == op]
    assert not found.faults
    assert found.refused == sum(case.bfloat16 for case in total)
    assert found.placed == len(total) - found.refused
    assert op == "TensorScatter" or found.worst > htp.LEAST  # which computes nothing
