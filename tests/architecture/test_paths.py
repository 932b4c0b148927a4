"""No file of ours names a folder of the machine it was made on."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MACHINE = re.compile("/(" + "|".join(("tmp", "work", "farm", "root")) + r")/[\w.-]+")


def test_no_machine_paths() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("capabilities", "rewriter", "frontends", "tests", "fixtures")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".tsv", ".md", ".json"} and "__pycache__" not in path.parts
        for match in [_MACHINE.search(path.read_text(encoding="utf-8"))]
        if match
    ]
    assert not found
