"""The numbers that values of a graph take while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from rewriter.activations.feeding import Calibration, Runs
from rewriter.activations.model import Range
from rewriter.tape import Workspace, names_in


def observed(file: Path, names: Iterable[str], calibration: Calibration) -> dict[str, Range]:
    """Smallest and largest number of each value over all calibration data.

    They are reduced in the graph itself, so that a run gives two numbers for each value.

    Args:
        file: the graph.
        names: values of it, in float32.
        calibration: what to run it on.

    Returns:
        By name; a value that is not finite everywhere is left out.

    Raises:
        RuntimeFault: ONNX Runtime fails.
    """
    model = ir.load(file)
    pairs = _watch(model, set(names))
    watched = file.with_name(f"watched-{file.name}")
    ir.save(model, watched)  # its weights stay where they are: beside it
    lows, highs = (dict.fromkeys(pairs, limit) for limit in (math.inf, -math.inf))
    give = [name for pair in pairs.values() for name in pair]
    with Runs(watched, calibration, like=file) as runs:
        for found in runs.outputs(give):
            for value, (low, high) in pairs.items():
                lows[value] = _least(lows[value], found[low])
                highs[value] = -_least(-highs[value], -found[high])
    return {
        name: Range(lows[name], highs[name])
        for name in pairs
        if math.isfinite(lows[name]) and math.isfinite(highs[name])
    }


def _least(known: float, found: np.ndarray) -> float:
    """The lower of two; NaN, if one is, for good."""
    return float(np.minimum(known, found))


def _watch(model: ir.Model, names: set[str]) -> Mapping[str, tuple[str, str]]:
    """Outputs that give the smallest and the largest number of each value."""
    graph = model.graph
    space = Workspace(graph, names_in(graph))
    values = {v.name: v for v in graph.inputs}
    values.update({v.name: v for node in graph for v in node.outputs})
    found = {}
    for name in sorted(names):
        pair = []
        for op in ("ReduceMin", "ReduceMax"):
            node = ir.Node("", op, [values[name]], [ir.AttrInt64("keepdims", 0)])
            node.name = node.outputs[0].name = space.unique(f"{name}/{op}")
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
            node.outputs[0].shape = ir.Shape(())
            graph.append(node)
            graph.outputs.append(node.outputs[0])
            pair.append(node.name)
        found[name] = (pair[0], pair[1])
    return found
