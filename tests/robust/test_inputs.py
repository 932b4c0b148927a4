"""Damaged inputs of every kind: refused in one line or read, whatever is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.robust.kinds import KINDS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and signals of Unix")

FEW = 8
COUNT = int(os.environ.get("FUZZ_INPUTS", "1000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
LOG = os.environ.get("FUZZ_LOG", "")
_MOST_BY_ONE = 500
"""Inputs that one process reads."""


def told(kind: str, seed: int, first: int, count: int, home: Path) -> Iterator[dict[str, Any]]:
    """What became of each input, those that ended their process included."""
    end = first + count
    while first < end:
        size = min(_MOST_BY_ONE, end - first)
        words = [kind, *map(str, (seed, first, size)), str(home)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.robust.worker", *words],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            first += 1
            yield json.loads(line)
        if done.returncode:
            end_of = f"the process ended with {done.returncode}: {done.stderr[-2000:]}"
            yield {"number": first, "code": done.returncode, "findings": [end_of]}
            first += 1


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_few(kind: str, tmp_path: Path) -> None:
    found = list(told(kind, 0, 0, FEW, tmp_path))
    assert len(found) == FEW
    assert [one for one in found if one["findings"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_many(kind: str, tmp_path: Path) -> None:
    """So many that some must be read, and some refused."""
    codes: dict[int, int] = {}
    findings = []
    for one in told(kind, SEED, 0, COUNT, tmp_path):
        codes[one["code"]] = codes.get(one["code"], 0) + 1
        if not one["findings"]:
            continue
        findings.append(one)
        assert LOG, one
        with Path(LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "seed": SEED, **one}) + "\n")
    assert sum(codes.values()) == COUNT
    assert codes.get(2)
    assert codes.get(0, 0) + codes.get(3, 0)
    assert not findings
