"""GGUF to ONNX, beside mobius and ``cp`` of the bytes that are read and written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.cost import Cost, Line, Measured, command, cpu, in_turn, line, megabytes, wall
from tests.benchmarks.external import CALL
from tests.benchmarks.gguf_file import QUARTER, REAL, Gemma, write
from tests.benchmarks.peers import MISSING, MOBIUS, python

_MOBIUS = "from mobius.__main__ import main; main()"


def lines(folder: Path, runs: int) -> Iterator[Line]:
    """The whole file beside ``cp``; a quarter of it beside mobius, which has all in memory."""
    model, out, copies = folder / "model.gguf", folder / "out", folder / "copies"
    rewrite = _rewrite(model, out)

    def cp() -> Cost:
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        return command("cp", model, *sorted(out.iterdir()), copies)()

    size = _written(model, REAL)
    pairs = in_turn(runs, rewrite, cp)
    work = f"GGUF to ONNX, {size:.1f} GB of Q4_K_M"
    yield line(work, "cp of what it reads and writes", 2.0, pairs, wall, "s")
    shutil.rmtree(copies)
    size, peer, theirs = _written(model, QUARTER), python(MOBIUS), folder / "theirs"
    words: list[str | Path] = ["build-gguf", model, "--keep-quantized", "-o", theirs]
    mobius = None if peer is None else command(peer, "-c", _MOBIUS, *words)
    pairs = in_turn(runs, rewrite, mobius)
    work, against = f"GGUF to ONNX, {size:.1f} GB", MOBIUS if mobius else f"{MOBIUS} ({MISSING})"
    yield line(work, against, 1 / 3, pairs, cpu, "CPU s")
    yield line(f"{work}: memory", against, 1 / 3, pairs, megabytes, "MB anonymous")
    for used in (out, theirs):
        shutil.rmtree(used, ignore_errors=True)
    model.unlink()


def _written(model: Path, size: Gemma) -> float:
    write(model, size)
    return model.stat().st_size / 1e9


def _rewrite(model: Path, out: Path) -> Measured:
    words: list[str | Path] = [
        model,
        "--ep",
        "ort-cpu",
        "-o",
        out,
        "--parity",
        "none",
        "--no-place",
    ]
    measured = command(sys.executable, "-c", CALL, *words)

    def run() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        return measured()

    return run
