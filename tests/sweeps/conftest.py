"""The fixture that all sweeps share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the environments live."""
    kept = os.environ.get("REWRITE_ENVIRONMENTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("environments")
