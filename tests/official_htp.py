"""The official node tests on HTP: the graphs of one op and opset beside each other in one model.

That takes a tenth of the time of a session each; if the whole is placed, each of them is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from capabilities import Target
from rewriter.placement import place
from tests import htp, official, ort
from tests.official import Official

LOWEST = -6e4
"""HTP has no -inf: the shipped -inf of a hidden score comes back as about the lowest fp16."""


@dataclass
class Found:
    """What became of the tests of one op.

    Attributes:
        runtime: versions.
        lowered: tests that were lowered, and whose every node ran on HTP.
        legal: tests that are legal as they stand, and ran on HTP.
        refused: tests that the rules or the table refuse.
        worst: largest error of an output, relative to its largest shipped value.
        faults: what was not placed, or is not close.
    """

    runtime: str
    lowered: int
    legal: int
    refused: int
    worst: float
    faults: list[str]

    @property
    def placed(self) -> int:
        """Tests whose every node ran on HTP."""
        return self.lowered + self.legal

    def __str__(self) -> str:
        counts = f"{self.lowered} lowered and {self.legal} legal as they stand placed whole"
        counts += f", {self.refused} refused"
        return f"{self.runtime}: {counts}, worst error {self.worst:.1e} of the largest value"


def run(op: str, on: Target, folder: Path, python: Path | None = None) -> Found:
    """Lower the tests of an op for a target and run them on its runtime."""
    found = Found("", 0, 0, 0, 0.0, [])
    groups: defaultdict[int, list[tuple[Official, ir.Model]]] = defaultdict(list)
    fired = {}
    for case in official.cases():
        if case.op == op:
            model, fired[case.name] = official.lowered(case, on)
            if model is None:
                found.refused += 1
            else:
                groups[model.opset_imports[""]].append((case, model))
    for opset, group in groups.items():
        path = folder / f"opset{opset}.onnx"
        onnx.save(_together(group), path)
        feeds = {
            f"{case.name}/{value.name}": case.feeds[value.name or ""]
            for case, model in group
            for value in model.graph.inputs
        }
        placed = place(path, ep="qnn", options={}, feeds=[feeds], time_limit=300, python=python)
        found.runtime = placed.runtime
        if placed.on_cpu or not placed.full:
            found.faults += [f"on the CPU: {name} ({kind})" for name, kind in placed.cpu_nodes]
            continue
        for case, _ in group:
            found.lowered += bool(fired[case.name])
            found.legal += not fired[case.name]
            _compare(case, placed.outputs[0], found)
    return found


def _together(group: Sequence[tuple[Official, ir.Model]]) -> onnx.ModelProto:
    """Models of one opset in one graph, their names behind that of the test.

    Every node gets a name: two nameless RMSNormalization collide in QNN before 2.5.
    """
    for _, model in group:
        for node in model.graph:
            node.name = node.name or node.op_type
    first, *others = (
        onnx.compose.add_prefix(ir.to_proto(model), f"{case.name}/") for case, model in group
    )
    for other in others:
        for field in ("node", "input", "output", "initializer"):
            getattr(first.graph, field).extend(getattr(other.graph, field))
    return first


def _compare(case: Official, outputs: ort.Arrays, found: Found) -> None:
    for name, shipped in case.expected.items():
        reference = shipped.astype(np.float64)
        actual = outputs[f"{case.name}/{name}"].astype(np.float64)
        hidden = np.isneginf(reference)
        if hidden.any():
            if not (actual[hidden] <= LOWEST).all():
                found.faults.append(f"{case.name}: {name} shows a hidden key")
            reference, actual = reference[~hidden], actual[~hidden]
        error = ort.worst(reference, actual)
        found.worst = max(found.worst, error)
        if error >= htp.MOST:
            found.faults.append(f"{case.name}: {name} is off by {error:.1e}")
