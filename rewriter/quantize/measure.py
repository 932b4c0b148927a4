"""How much each channel of a layer's input counts: its mean square in runs of the float model.

A model's inputs are not white: a few channels are far larger than the others, and what a weight
loses there is what its layer loses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from rewriter.cost import estimate, free_gb
from rewriter.errors import RuntimeFault
from rewriter.parity.feeds import Feeds
from rewriter.parity.trial import run_model, trial
from rewriter.quantize.places import places
from rewriter.shapes import infer_model
from rewriter.tape import Tape, Workspace, names_in

_OPSET = 13
"""From which ReduceSum takes its axes as an input."""


def mean_squares(
    model: ir.Model,
    folder: Path,
    feeds: Sequence[Feeds] = (),
    *,
    seed: int = 0,
    time_limit: float = 600,
) -> dict[str, npt.NDArray[np.float64]]:
    """The mean square of each channel of what is multiplied with a float weight.

    Args:
        model: of floats, its dims fixed, which is edited: give a copy.
        folder: where it is written for a moment, if there is room.
        feeds: inputs by name; random ones, as for parity, if there are none.
        seed: of those.
        time_limit: seconds.

    Returns:
        By the name of the node, (K,), 1 in the mean. Nodes whose input was not reached (inside
        other graphs, transposed, or a Conv's) are left out, and all of them where the model takes
        more memory than is free, or does not run.

    Raises:
        RuntimeFault: onnxruntime is not installed.
        OutOfResources: the disk is full.
    """
    infer_model(model)
    if estimate(model).session_gb() > free_gb() or model.opset_imports.get("", 0) < _OPSET:
        return {}
    squares = _add_squares(model)
    given = trial(model, seed)
    if feeds:
        given = replace(given, feeds=tuple(feeds))
    outputs = [value.name or "" for value in dict.fromkeys(squares.values())]
    try:
        found = run_model(model, given, folder / "measured.onnx", time_limit, outputs)
    except RuntimeFault as fault:
        if fault.kind == "missing":
            raise
        return {}
    sums = {name: np.sum([run[name] for run in found], axis=0, dtype=float) for name in outputs}
    measured = {node: sums[value.name or ""] for node, value in squares.items()}
    return {node: one / one.mean() for node, one in measured.items() if _tells(one)}


def _tells(squares: npt.NDArray[np.float64]) -> bool:
    return bool(np.isfinite(squares).all() and squares.any())


def _add_squares(model: ir.Model) -> dict[str, ir.Value]:
    """Sums of squares over all but the last axis as outputs, by the nodes that read their input."""
    tape = Tape(Workspace(model.graph, names_in(model.graph)), "squares", model.opset_imports)
    added: dict[ir.Value, ir.Value] = {}
    found: dict[str, ir.Value] = {}
    for place in places(model, again=False):
        node, k = place.node, place.matrix.k
        turned = node.attributes.get("transA")
        plain = node.op_type in {"MatMul", "Gemm"} and not (turned and turned.as_int())
        a = node.inputs[0]
        if not plain or place.flaw() or node.graph is not model.graph or a is None:
            continue
        if a not in added:
            rows = tape.Reshape(a, tape.const(np.array([-1, k], np.int64)))
            wide = tape.Cast(rows, to=ir.DataType.FLOAT)
            axes = tape.const(np.array([0], np.int64))
            added[a] = tape.ReduceSum(tape.Mul(wide, wide), axes, keepdims=0)
        found[node.name or ""] = added[a]
    for value in tape.constants:
        model.graph.register_initializer(value)
    model.graph.extend(tape.nodes)
    model.graph.outputs.extend(added.values())
    return found
