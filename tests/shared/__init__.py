"""Tests over ``../shared``, beside the checkout; where it is not there they say so and skip."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
needs_shared = pytest.mark.skipif(
    not (SHARED / "onnx").is_dir(), reason="the folder ../shared (real models) is not there"
)
