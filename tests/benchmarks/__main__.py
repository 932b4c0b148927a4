"""Costs beside those of something known, measured side by side: ``python -m tests.benchmarks``.

Each line is a ratio of CPU seconds (children included), the median of pairs that are run in turn,
so that what else the machine does falls on both. Nothing here is asserted: times are no tests.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from capabilities import Target, target
from frontends import read
from rewriter.lowering import lower
from rewriter.output import Staging
from rewriter.passes.fix_dims import fix_dims
from tests import toys
from tests.decoders import Decoder, decoder

_PAIRS = 5
_NODES = 1000
_OPS = ("Relu", "Neg", "com.microsoft::FastGelu", "Abs")
_DIMS = {"batch": 1, "seq": 1, "past": 8}
_QNN = target("qnn", "2.7.0")

Work = Callable[[], object]
"""Something to measure; what it needs is made before."""


def cpu_seconds(work: Work) -> float:
    """User and system time of this process and the children it waited for."""
    gc.collect()  # what the work before has left is not its cost
    began = os.times()
    work()
    ended = os.times()
    return sum(ended[:4]) - sum(began[:4])


def _chain(size: int = _NODES) -> ir.Model:
    ops = [_OPS[i % len(_OPS)] for i in range(size)]
    return toys.chain(ops, shape=(1, 4, 8), opset=20)


def _lowered(model: ir.Model, to: Target) -> Work:
    return lambda: lower(model, to, allow_stuck=True, keep_sites=False)


def _rewritten(model: ir.Model) -> Work:
    from onnxscript.rewriter import rewrite

    def work() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            rewrite(model)

    return work


def _decoder(layers: int) -> ir.Model:
    model = decoder(Decoder(layers=layers, packed=False))
    fix_dims(model, _DIMS)
    return model


def _command(*words: str) -> Work:
    return lambda: subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def _copies(folder: Path) -> tuple[Work, Work]:
    """Writing a model whose weights do not change, and ``cp`` of their file."""
    source = folder / "model.onnx"
    spec = Decoder(weights="noise", layers=2, hidden=2048, ffn=8192, vocabulary=32000)
    ir.save(decoder(spec), source, external_data="model.onnx.data")
    model, stage = read(source), Staging(folder / "out", folder)
    data = source.with_name("model.onnx.data")
    return (
        lambda: stage.write(model, "copy.onnx"),
        lambda: subprocess.run(["cp", data, folder / "plain.data"], check=True),
    )


def pairs(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[Work, Work]]]]:
    """What is compared; called anew for each pair, as the models are edited."""
    help_words = ("-c", "from rewriter.cli import main; main(['--help'])")
    rows = toys.target(*(f"{op} | any | legal" for op in _OPS))
    yield (
        f"match {_NODES:,} nodes / onnxscript.rewriter",
        lambda: (_lowered(_chain(), rows), _rewritten(_chain())),
    )
    yield (
        f"rewrite {_NODES:,} nodes, a quarter illegal / same",
        lambda: (_lowered(_chain(), target("onnx-standard")), _rewritten(_chain())),
    )
    yield (
        "lower a decoder of 24 layers / same",
        lambda: (_lowered(_decoder(24), _QNN), _rewritten(_decoder(24))),
    )
    yield (
        "lower 96 layers / 24 layers (4 is linear)",
        lambda: (_lowered(_decoder(96), _QNN), _lowered(_decoder(24), _QNN)),
    )
    yield (
        "rewrite --help / python -c 'import onnx'",
        lambda: (_command(*help_words), _command("-c", "import onnx")),
    )
    copies = _copies(folder)
    yield "write external data / cp", lambda: copies


def main() -> None:
    """Print the table."""
    table = Table("ours / other", "ours s", "other s", "ratio", box=None)
    with tempfile.TemporaryDirectory(prefix="rewrite-") as name:
        for label, make in pairs(Path(name)):
            ours, others = zip(*(map(cpu_seconds, make()) for _ in range(_PAIRS)), strict=True)
            ratio = statistics.median(
                one / max(o, 1e-3) for one, o in zip(ours, others, strict=True)
            )
            figures = statistics.median(ours), statistics.median(others), ratio
            table.add_row(label, *(f"{figure:.3g}" for figure in figures))
        shutil.rmtree(Path(name) / "out", ignore_errors=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Console().print(table)
    Console().print("onnxscript.rewriter.rewrite with its default rules")
    Console().print(f"medians of {_PAIRS} pairs, CPU seconds; peak RSS {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
