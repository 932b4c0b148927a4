"""The oracle of the tests: ONNX Runtime on the CPU, with exact settings, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Arrays = dict[str, npt.NDArray[Any]]


def run(model: ir.Model, feeds: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Outputs of a model by name; inputs it does not have are left out."""
    import onnxruntime as ort

    copy = model.clone()
    for node in copy.graph:
        if "accuracy_level" in node.attributes:
            del node.attributes["accuracy_level"]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    options.log_severity_level = 4
    session = ort.InferenceSession(
        ir.to_proto(copy).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = {value.name for value in session.get_inputs()}
    found = session.run(None, {k: v for k, v in feeds.items() if k in names})
    return {o.name: array for o, array in zip(session.get_outputs(), found, strict=True)}


def worst(reference: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Largest difference over the largest reference value, which must be a number and not 0."""
    assert reference.shape == other.shape
    largest = float(np.abs(reference).max())
    assert np.isfinite(reference).all()
    assert largest > 0
    return float(np.abs(reference - other).max()) / largest
