"""Other people's tools, each in an environment of its own; never imported here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.cost import Cost
from tests.sweeps.environments import PEERS, python_of

MOBIUS, OLIVE = PEERS
MISSING = "not installed: REWRITE_ENVIRONMENTS names no folder"


def python(name: str) -> Path | None:
    """The interpreter of a peer's (or a runtime's) environment, made where it is missing.

    Args:
        name: as :func:`python_of` takes it.

    Returns:
        None where no folder for environments is named.
    """
    folder = os.environ.get("REWRITE_ENVIRONMENTS")
    return python_of(Path(folder), name) if folder else None


def told(interpreter: Path, script: str, *words: str | Path) -> Any:
    """What a script prints as JSON in its last line.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    command: Sequence[str | Path] = [interpreter, "-c", script, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def cost_told(interpreter: Path, script: str, *words: str | Path) -> Cost:
    """A :class:`Cost` from what a script prints: ``cpu``, ``figure``, ..."""
    return Cost(**told(interpreter, script, *words))
