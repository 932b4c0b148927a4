"""MatMulNBits to DequantizeLinear and MatMul, 400 MB of 4-bit weights, beside Olive's pass."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from tests.benchmarks.cost import Cost, Line, command, cpu, in_turn, line, megabytes
from tests.benchmarks.external import CALL
from tests.benchmarks.peers import MISSING, OLIVE, python
from tests.decoders import REAL, decoder

_OLIVE = """
import sys
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.onnx.mnb_to_qdq import MatMulNBitsToQDQ
settings = {"save_as_external_data": True}
made = create_pass_from_dict(MatMulNBitsToQDQ, settings, disable_search=True)
made.run(ONNXModelHandler(sys.argv[1]), sys.argv[2])
"""
_OP = "com.microsoft::MatMulNBits"
_SPEC = replace(REAL, layers=13, vocabulary=2048, max_positions=64)
"""700 million weights of 4 bits, and a small table."""


def lines(folder: Path, runs: int) -> Iterator[Line]:
    """Time and memory."""
    source, out, theirs = folder / "in" / "model.onnx", folder / "out", folder / "theirs"
    source.parent.mkdir()
    ir.save(decoder(_SPEC), source, external_data="model.onnx.data")
    size = source.with_name("model.onnx.data").stat().st_size / 1e6
    words: list[str | Path] = [source, "--ep", "ort-cpu", "--illegal", _OP, "-o", out]
    words += ["--parity", "none", "--no-place"]
    rewrite, peer = command(sys.executable, "-c", CALL, *words), python(OLIVE)
    olive = None if peer is None else command(peer, "-c", _OLIVE, source, theirs, cwd=folder)

    def ours() -> Cost:
        shutil.rmtree(out, ignore_errors=True)
        return rewrite()

    def other() -> Cost:
        shutil.rmtree(theirs, ignore_errors=True)
        assert olive is not None
        return olive()

    pairs = in_turn(runs, ours, other if olive else None)
    shutil.rmtree(source.parent)
    work, against = f"MatMulNBits to QDQ, {size:.0f} MB", OLIVE if olive else f"{OLIVE} ({MISSING})"
    yield line(work, against, 1 / 8, pairs, cpu, "CPU s")
    yield line(f"{work}: memory", against, 1 / 4, pairs, megabytes, "MB anonymous")
