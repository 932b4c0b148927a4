"""Bytes that a decode step moves, by QNN 2.4's own count, beside mobius' lowering for QNN."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir

from frontends import read
from rewriter.passes.fix_dims import fix_dims
from rewriter.placement.qnn import default_options
from rewriter.runtime import child
from tests.benchmarks.cost import Cost, Line, command, counted, line
from tests.benchmarks.external import CALL
from tests.benchmarks.gguf_file import SMALL, write
from tests.benchmarks.peers import MISSING, MOBIUS, python, told

_RUNTIME = "qnn@2.4.0"
"""The last version but one that prints the count."""
_ROWS = 64
_MOBIUS = f"""
import sys
from mobius.integrations.gguf import build_from_gguf
made = build_from_gguf(sys.argv[1], keep_quantized=True, execution_provider="qnn",
                       static_cache=True, max_seq_len={_ROWS})
made.save(sys.argv[2])
print()
print(0)
"""
_LIMIT = 900.0


def lines(folder: Path, _runs: int) -> Iterator[Line]:
    """Nodes and bytes, counted once: neither varies."""
    file, out, theirs = folder / "small.gguf", folder / "out", folder / "theirs"
    write(file, SMALL)
    words: list[str | Path] = [
        file,
        "--ep",
        _RUNTIME,
        "--static",
        "decode",
        "--max-seq-len",
        str(_ROWS),
    ]
    words += ["--parity", "none", "--no-place", "-o", out]
    command(sys.executable, "-c", CALL, *words)()
    ours, peer = out / "decode.onnx", python(MOBIUS)
    other = None if peer is None else _made(peer, file, theirs)
    against = f"{MOBIUS} for qnn" if other else f"{MOBIUS} ({MISSING})"
    pair = _nodes(ours), None if other is None else _nodes(other)
    work = f"decode step of {SMALL.layers} layers lowered for {_RUNTIME}"
    yield line(f"{work}: nodes", against, 0.7, [pair], counted, "nodes")
    runtime = python(_RUNTIME)
    if runtime is not None:
        pair = _moved(ours, runtime), None if other is None else _moved(other, runtime)
        yield line(f"{work}: static DDR", against, 0.9, [pair], counted, "MB")
    for used in (out, theirs):
        shutil.rmtree(used, ignore_errors=True)
    file.unlink()


def _made(peer: Path, file: Path, folder: Path) -> Path:
    """What mobius writes, with the dims that it leaves open fixed to the same step."""
    told(peer, _MOBIUS, file, folder)
    model, fixed = read(folder / "model.onnx"), folder / "fixed.onnx"
    fix_dims(model, {"batch": 1, "seq": 1})
    ir.save(model, fixed, external_data="fixed.onnx.data")
    return fixed


def _nodes(file: Path) -> Cost:
    nodes = ir.traversal.RecursiveGraphIterator(ir.load(file).graph)
    return Cost(figure=sum(node.op_type != "Constant" for node in nodes))


def _moved(file: Path, runtime: Path) -> Cost:
    """Bytes read and written by all partitions."""
    options = default_options()
    job = child.Job(file, ep="qnn", provider_options=options, optimize=True, verbose=True)
    ddr = child.run(job, python=runtime, time_limit=_LIMIT).ddr
    kinds = ("read_total_bytes", "write_total_bytes")
    return Cost(figure=sum(part[kind] for part in ddr for kind in kinds) / 1e6)
