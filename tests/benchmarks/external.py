"""A model of 3 GB whose weights do not change, rewritten, beside ``cp`` of the same bytes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from tests.benchmarks.cost import Cost, Line, command, in_turn, line, megabytes, wall
from tests.decoders import REAL, decoder

_LAYERS = 48
_MOST = 300.0
"""MB of anonymous memory that are allowed."""
CALL = "from rewriter.cli import main; raise SystemExit(main())"


def lines(folder: Path, runs: int) -> Iterator[Line]:
    """Time and memory."""
    source, out, copy = folder / "in" / "model.onnx", folder / "out", folder / "copy"
    source.parent.mkdir()
    spec = replace(REAL, layers=_LAYERS, vocabulary=64000)
    ir.save(decoder(spec), source, external_data="model.onnx.data")
    size = sum(path.stat().st_size for path in source.parent.iterdir()) / 1e9
    words: list[str | Path] = [
        source,
        "--ep",
        "qnn",
        "--dim",
        "batch=1",
        "--dim",
        "seq=1",
        "--dim",
        "past=8",
    ]
    words += ["--parity", "none", "--no-place", "-o", out]
    rewrite = command(sys.executable, "-c", CALL, *words)
    cp = command("cp", "-r", source.parent, copy)

    def ours() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        return rewrite()

    def other() -> Cost:
        shutil.rmtree(copy, ignore_errors=True)
        return cp()

    pairs = in_turn(runs, ours, other)
    for used in (source.parent, out, copy):
        shutil.rmtree(used)
    work = f"{size:.1f} GB of external data rewritten, not repacked"
    yield line(work, "cp", 1.3, pairs, wall, "s")
    limit = Cost(anonymous=int(_MOST * 1e6))
    yield line(
        f"{work}: memory", f"{_MOST:.0f} MB", 1.0, [(ours_, limit) for ours_, _ in pairs],
        megabytes, "MB anonymous",
    )  # fmt: skip
