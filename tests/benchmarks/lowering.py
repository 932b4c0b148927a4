"""Lowering a decoder of 35 layers for QNN, beside mobius' lowering of the same checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from capabilities import target
from frontends import read
from rewriter.lowering import lower
from rewriter.passes.fix_dims import fix_dims
from tests.benchmarks.cost import Line, cpu, in_process, in_turn, line
from tests.benchmarks.gguf_file import SMALL, write
from tests.benchmarks.peers import MISSING, MOBIUS, cost_told, python

_MOBIUS = """
import json, sys, time
import mobius._builder as builder
spent, original = [], builder.optimize_model
def timed(*args, **kwargs):
    began = time.process_time()
    original(*args, **kwargs)
    spent.append(time.process_time() - began)
builder.optimize_model = timed
from mobius.integrations.gguf import build_from_gguf
build_from_gguf(sys.argv[1], keep_quantized=True, execution_provider="qnn", static_cache=True,
                max_seq_len=64)
print(json.dumps({"cpu": sum(spent)}))
"""
_DIMS = {"batch": 1, "seq": 1, "past": 64, "total": 64}


def lines(folder: Path, runs: int) -> Iterator[Line]:
    """One row: the stage alone, in each tool's own graph."""
    file = folder / "small.gguf"
    write(file, SMALL)
    to, peer = target("qnn"), python(MOBIUS)

    def ours() -> Callable[[], object]:
        model = read(file)
        fix_dims(model, _DIMS)
        return lambda: lower(model, to)

    other = None if peer is None else lambda: cost_told(peer, _MOBIUS, file)
    against = f"{MOBIUS} optimize_model" if other else f"{MOBIUS} ({MISSING})"
    pairs = in_turn(runs, in_process(ours), other)
    yield line(f"lower {SMALL.layers} layers of Gemma 4", against, 1 / 3, pairs, cpu, "CPU s")
    file.unlink()
