"""How long ``rewrite --help`` and ``import rewriter`` take, beside ``import onnx``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.cost import Line, command, in_turn, line, wall

_HELP = "from rewriter.cli import main; main(['--help'])"


def lines(_folder: Path, runs: int) -> Iterator[Line]:
    """Two rows."""
    other = command(sys.executable, "-c", "import onnx")
    for work, script in (("rewrite --help", _HELP), ("import rewriter", "import rewriter")):
        pairs = in_turn(2 * runs + 1, command(sys.executable, "-c", script), other)
        yield line(work, "python -c 'import onnx'", 1.2, pairs, wall, "s")
