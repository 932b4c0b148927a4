"""The packer of the tests against what AutoGPTQ 0.7.1 and AutoAWQ 0.2.7 packed themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frontends.safetensors.packers import PACKED, awq, gptq

FIXTURE = Path(__file__).parents[3] / "fixtures" / "packed.npz"


@pytest.mark.parametrize("name", PACKED)
def test_packs_as_the_tools_do(name: str) -> None:
    method, made = PACKED[name]
    ours = gptq("x", made(), 1) if method == "gptq" else awq("x", made())
    with np.load(FIXTURE) as stored:
        for key in ("qweight", "qzeros"):
            assert stored[f"{name}.{key}"].any()
            assert np.array_equal(ours[f"x.{key}"], stored[f"{name}.{key}"]), key
