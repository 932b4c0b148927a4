"""The installed HTP in tests: what a rule emits is placed whole, and close to the original."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from rewriter.placement import place
from rewriter.runtime.versions import installed
from tests import ort

needs_qnn = pytest.mark.skipif(installed("qnn") is None, reason="needs onnxruntime-qnn")

LEAST, MOST = 1e-6, 0.02
"""Relative errors between which an answer came from HTP's fp16 arithmetic and is right: below it
was not HTP (lowering.md, trap 5). What is exact in fp16 too is checked with ``least=0``."""


def run(
    model: ir.Model, feeds: Mapping[str, npt.NDArray[Any]], folder: Path, **options: str
) -> ort.Arrays:
    """Outputs of a model that HTP runs whole; inputs it does not have are left out."""
    path = folder / "model.onnx"
    ir.save(model, path)
    names = {value.name for value in model.graph.inputs}
    given = {name: array for name, array in feeds.items() if name in names}
    placed = place(path, ep="qnn", options=options, feeds=[given], time_limit=120)
    assert (placed.on_cpu, placed.full) == (0, True), (placed.cpu_nodes, placed.reasons)
    return dict(placed.outputs[0])


def check(
    model: ir.Model,
    feeds: Mapping[str, npt.NDArray[Any]],
    expected: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    least: float = LEAST,
) -> None:
    """Every output of a lowered model on HTP against the original's on the CPU."""
    found = run(model, feeds, folder)
    for name, reference in expected.items():
        error = ort.worst(np.asarray(reference, np.float64), np.asarray(found[name], np.float64))
        assert least <= error < MOST, f"{name}: {error}"
