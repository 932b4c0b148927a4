"""The place where two models part, as two small models that anyone can run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.audit.find import Drift
from rewriter.audit.values import Pair
from rewriter.extract import extract
from rewriter.output import disk
from rewriter.parity.compare import Error, compare_runs
from rewriter.parity.settings import EXACT
from rewriter.runtime import child

FILES = ("original.onnx", "result.onnx", "inputs.npz", "expected.npz")
"""What is written: both sides, what they are fed, and what the original gives."""


@dataclass(frozen=True, slots=True)
class Dump:
    """What was written.

    Attributes:
        folder: where.
        nodes: of the original's side and of the result's.
        inputs: names and shapes.
        error: of the result's side on the original's inputs, run as they were written.
    """

    folder: Path
    nodes: tuple[int, int]
    inputs: dict[str, tuple[int, ...]]
    error: Error


def dump(drift: Drift, pair: Pair, folder: Path, time_limit: float) -> Dump:
    """Write the smallest part of both models that shows a drift, and run it.

    Args:
        drift: where they part.
        pair: what was audited.
        folder: an empty one; ``inputs.npz`` gets values of the original's first run.
        time_limit: seconds for each run.

    Raises:
        OutOfResources: the disk is full.
        RuntimeFault: ONNX Runtime fails.
    """
    agreed = frozenset(drift.agreed)
    parts = [_part(side.model, drift.value, agreed) for side in (pair.original, pair.result)]
    needed = sorted({value.name or "" for part in parts for value in part.graph.inputs})
    feed = pair.original.run(needed)[0]
    outputs = []
    for name, part in zip(FILES[:2], parts, strict=True):
        with disk(folder):
            ir.save(part, folder / name, external_data=f"{name}.data", size_threshold_bytes=1 << 20)
        own = {given.name or "": feed[given.name or ""] for given in part.graph.inputs}
        job = child.Job(folder / name, config=EXACT, feeds=[own])
        outputs.append(child.run(job, time_limit=time_limit).outputs[0][drift.value])
    with disk(folder):
        np.savez(folder / FILES[2], **feed)  # type: ignore[arg-type]  # numpy's stub takes keywords for allow_pickle
        np.savez(folder / FILES[3], **{drift.value: outputs[0]})  # type: ignore[arg-type]  # numpy's stub takes keywords for allow_pickle
    return Dump(
        folder,
        (parts[0].graph.num_nodes(), parts[1].graph.num_nodes()),
        {name: array.shape for name, array in feed.items()},
        compare_runs([(outputs[0], outputs[1])]),
    )


def _part(model: ir.Model, name: str, agreed: frozenset[str]) -> ir.Model:
    """What computes a value from others."""
    values = {v.name or "": v for node in model.graph for v in node.outputs}
    boundary = [value for found, value in values.items() if found in agreed]
    return extract(model, [values[name]], [name], boundary)
