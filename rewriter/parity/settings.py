"""The settings both sides run with, and the tolerances, each with its reason."""

from __future__ import annotations

import onnx_ir as ir

EXACT = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""Session entries besides ORT_DISABLE_ALL: at the default level ORT would compute a
DequantizeLinear -> MatMul with int8 activations, and the oracle would lie."""

EXACT_TEXT = (
    "ORT CPU, graph optimizations off, accuracy_level removed, "
    "session.qdq_matmulnbits_accuracy_level=1"
)

MODEL_TOLERANCE = {"float": 1e-4, "double": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error of a whole model, in standard deviations of the reference. fp32: a right lowering
measured 1e-6 to 7e-6 (lowering.md), and mutants as small as a scale off by 1 % start at 2e-3. The
others follow the precision of the type: 2^-11 and 2^-8 through some dozens of layers."""

SITE_FACTOR = {"float": 1.0, "double": 1.0, "float16": 400.0, "bfloat16": 3000.0}
"""A rule's tolerance is for float32; the others round that much coarser."""

DEVICE_MAX, DEVICE_RMS = 0.03, 0.005
"""HTP computes in fp16: right lowerings measured max 0.004-0.017 and rms 0.0013-0.0032 of the
standard deviation of the logits, wrong ones begin at 0.3 (lowering.md)."""

EXACT_DEVICES = frozenset({"openvino"})
"""EPs that compute as precisely as the reference, so that MODEL_TOLERANCE holds for them: on
OpenVINO's CPU plugin in f32, without dynamic quantization, right lowerings measured 4e-7 to 8e-6
(lowering.md); its defaults would be 0.02 to 0.2 away."""


def drop_accuracy_level(model: ir.Model) -> int:
    """Remove the leave to round activations; returns from how many nodes."""
    dropped = 0
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.attributes.get("accuracy_level") is not None:
            del node.attributes["accuracy_level"]
            dropped += 1
    return dropped
