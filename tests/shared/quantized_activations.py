"""Checkpoints with quantized activations on HTP, and ONNX Runtime's own configuration beside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rewriter.activations import Calibration, Divergence, calibration, divergence
from rewriter.activations.feeding import Runs
from rewriter.cli import main
from tests.shared.files import MODELS

ROWS = 32
LARGEST, RMS = 0.03, 0.01
"""Of standard deviations: measured 0.005 to 0.017 and 0.0014 to 0.0065; wrong forms begin at 3."""


def written(model: str, folder: Path, *more: str) -> dict[str, Any]:
    """The report of a checkpoint that was rewritten without a fault."""
    report = folder / "report.json"
    words = [str(MODELS / model), "--max-seq-len", str(ROWS), "-o", str(folder / "out")]
    assert main([*words, "--report", str(report), *more]) == 0
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def check_a16(graph: dict[str, Any]) -> None:
    """All on HTP, in integers, and within what its kernels of halves cost; close to the floats."""
    assert (graph["placement"]["on_cpu"], graph["placement"]["full"]) == (0, True)
    assert graph["activations"]["floats"] == {}
    assert set(graph["activations"]["units"]) == {"16"}
    found = graph["parity"]["device_quantized"]
    assert {one["name"] for one in found} >= {"logits", "present.0.key", "present.0.value"}
    for one in found:
        assert one["step"] > 0
        assert one["max_std"] <= LARGEST, one
        assert one["rms_std"] <= RMS, one
    assert 0 < graph["activations"]["divergence"]["mean"] < 1e-5


def default_configuration(floats: Path, folder: Path) -> Divergence:
    """KL of what ``get_qnn_qdq_config`` makes of the same graph on the same calibration data."""
    from onnxruntime.quantization import CalibrationDataReader, quantize
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    given = calibration("auto", floats, None, 0)

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the base class is not annotated
        """All inputs of every run."""

        def __init__(self, feeds: Sequence[dict[str, Any]]) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            """The next, until there is none."""
            return next(self._feeds, None)

    path = folder / "default.onnx"
    reader = Reader(feeds_of(floats, given))
    quantize(str(floats), str(path), get_qnn_qdq_config(str(floats), reader))
    return divergence(floats, path, given)


def feeds_of(file: Path, given: Calibration) -> list[dict[str, Any]]:
    """All inputs of every run of a graph on calibration data."""
    with Runs(file, given) as runs:
        feeds = [feeds for _, feeds, _ in runs.inputs()]
    assert len(feeds) == ROWS * len(given.prompts)
    assert any(np.any(array) for array in feeds[-1].values())
    return feeds
