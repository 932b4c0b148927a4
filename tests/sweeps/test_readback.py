"""Read-back of every quantized form on the emulator of every other measured version.

Slow, in the environments of :mod:`tests.sweeps.environments`; the installed version is in
tests/rewriter/rules/test_readback.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from capabilities import target
from tests.readback import behind_dequantize, misread, packed, refused
from tests.sweeps.environments import PACKAGES, python_of

pytestmark = pytest.mark.slow
VERSIONS = [name for name in PACKAGES if name.startswith("qnn@")]
WEIGHTS = [form for op in ("MatMul", "Gemm", "Conv") for form in behind_dequantize(op)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [(64, 32), (256, 64)], ids=str)
@pytest.mark.parametrize("activations", [0, 16, 8])
def test_weights_read_back(
    activations: int, size: tuple[int, int], version: str, environments: Path, tmp_path: Path
) -> None:
    qnn = target(*version.split("@"))
    forms = WEIGHTS
    if not activations:
        tables = behind_dequantize("Gather")
        forms = [*forms, *tables, *packed("MatMulNBits"), *packed("GatherBlockQuantized")]
    left = refused(forms, qnn, activations)
    assert len(left) < len(forms) / 4
    python = python_of(environments, version)
    rest = [form for form in forms if form not in left]
    found = misread(rest, qnn, tmp_path, activations=activations, python=python, size=size)
    assert found == {}
