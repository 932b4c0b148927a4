"""Bytes of everything an installation brings along, beside a peer's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.cost import Cost, Line, counted, line
from tests.benchmarks.peers import MISSING, MOBIUS, python, told

_SIZE = r"""
import json, re, sys
from importlib.metadata import PackageNotFoundError, distribution
from packaging.requirements import Requirement

def key(name):
    return re.sub(r"[-_.]+", "-", name).lower()

seen, waiting, size = set(), [Requirement(sys.argv[1])], 0
while waiting:
    wanted = waiting.pop()
    for extra in ("", *wanted.extras):
        if (key(wanted.name), extra) in seen:
            continue
        first = not any(name == key(wanted.name) for name, _ in seen)
        seen.add((key(wanted.name), extra))
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        for file in (found.files or []) if first else []:
            path = found.locate_file(file)
            if path.is_file():
                size += path.stat().st_size
        for text in found.requires or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting.append(needed)
print(json.dumps(size))
"""
"""What a requirement installs, by the packages' own lists of files."""


def lines(_folder: Path, _runs: int) -> Iterator[Line]:
    """Two rows, counted once: bytes do not vary."""
    peer = python(MOBIUS)
    theirs = None if peer is None else Cost(figure=told(peer, _SIZE, "mobius-onnx") / 2**20)
    for wanted, goal in (("ep-rewriter", 0.25), ("ep-rewriter[qnn]", 0.5)):
        ours = Cost(figure=told(Path(sys.executable), _SIZE, wanted) / 2**20)
        against = MOBIUS if theirs else f"{MOBIUS} ({MISSING})"
        yield line(f"installed tree of {wanted}", against, goal, [(ours, theirs)], counted, "MiB")
