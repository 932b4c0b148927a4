"""How far units are from ONNX Runtime's CPU on the emulator of every other measured version."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.environments import PACKAGES, python_of
from tests.units import check_units

pytestmark = pytest.mark.slow
VERSIONS = [name for name in PACKAGES if name.startswith("qnn@")]


@pytest.mark.parametrize("version", VERSIONS)
def test_units_are_as_near_as_was_measured(
    version: str, environments: Path, tmp_path: Path
) -> None:
    check_units(version.partition("@")[2], tmp_path, python_of(environments, version))
