"""The settings both sides run with, and the tolerances, each with its reason."""

from __future__ import annotations

import onnx_ir as ir

from rewriter.parity.exact_experts import split_blocks
from rewriter.parity.exact_integers import unsigned_weights
from rewriter.parity.interleaved_experts import interleave

EXACT = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""Session entries besides ORT_DISABLE_ALL: at the default level ORT would compute a
DequantizeLinear -> MatMul with int8 activations, and the oracle would lie."""

EXACT_TEXT = (
    "ORT CPU, graph optimizations off, accuracy_level removed, "
    "session.qdq_matmulnbits_accuracy_level=1, ORT_QMOE_CPU_QNBIT_GEMM=0, "
    "2-bit QMoE in blocks of 16, gates and values of experts in turns, weights of integer products "
    "unsigned"
)

MODEL_TOLERANCE = {"float": 1e-4, "double": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest error of a whole model, in standard deviations of the reference. fp32: a right lowering
measured 1e-6 to 7e-6 (lowering.md), and mutants as small as a scale off by 1 % start at 2e-3. The
others follow the precision of the type: 2^-11 and 2^-8 through some dozens of layers. They hold
for what a model computes in its type; besides, it is compared in float32 at the tolerance of that,
which is what sees a mutant."""

HALF_FACTOR = 2.0
"""Error of a result in half precision over the one of its original, both from the original in
float32. Two right programs round in other places and differ from the truth alike: measured 0.5 to
1.3 times on the shared files in float16; twice leaves room for the largest of few values."""

NUDGE_FACTOR = 2.0
"""A constant that a rule wrote into a graph of halves, or that was folded there, is off by half a
step at most; several of them may add up."""

SITE_FACTOR = {"float": 1.0, "double": 1.0, "float16": 400.0, "bfloat16": 3000.0}
"""A rule's tolerance is for float32; the others round that much coarser."""

DEVICE_MAX, DEVICE_RMS = 0.03, 0.005
"""HTP computes in fp16: right lowerings measured max 0.004-0.017 and rms 0.0013-0.0032 of the
standard deviation of the logits, wrong ones begin at 0.3 (lowering.md). An output beyond this is
held to what HTP's arithmetic costs on its graph, if that is more (:data:`DEVICE_FACTOR`)."""

DEVICE_FACTOR = 3.0
"""Error of HTP over the estimate of :func:`rewriter.parity.half.in_half`, pooled over inputs; both
the largest and the rms have to be within. Measured on QNN 2.7.0, rms (largest): the shared files
0.3-1.4 (0.1-1.3); 48 MLPs of Softplus, Gelu, SiLU or Tanh with 1 to 10 outputs 0.2-2.0 (0.1-1.6);
four ViT classifiers of 2 or 3 logits 0.1-1.0 (0.1-0.7). The estimate is only made where the fixed
bound fails, so it widens nothing for a file that is within (for the shared ones it is rms 0.0007
to 0.0019, and 0.006 where Tanh caps the logits); MLPs whose few outputs nearly cancel reach
0.09."""

DEVICE_CEILING = (0.3, 0.1)
"""No estimate allows more, largest and rms: wrong lowerings begin at 0.3, and a graph that
overflows in fp16 is wrong on the device however well that was foreseen. Right lowerings of few
outputs measured up to 0.064 and 0.047."""

DEVICE_DRAWS = 8
"""Inputs that the estimate is pooled over: of few outputs, one draw may err by chance."""

EXACT_DEVICES = frozenset({"openvino"})
"""EPs that compute as precisely as the reference, so that MODEL_TOLERANCE holds for them: on
OpenVINO's CPU plugin in f32, without dynamic quantization, right lowerings measured 4e-7 to 8e-6
(lowering.md); its defaults would be 0.02 to 0.2 away."""


def drop_accuracy_level(model: ir.Model) -> int:
    """Remove the leave to round activations; returns from how many nodes.

    QMoE of 2 bits, which needs no leave to round, gets blocks that its kernel does not; experts
    whose gates and values do not lie in turns are put in that order, for which there is a kernel.
    Signed weights of products of integers become unsigned.
    """
    dropped = split_blocks(model) + interleave(model) + unsigned_weights(model)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.attributes.get("accuracy_level") is not None:
            del node.attributes["accuracy_level"]
            dropped += 1
    return dropped
