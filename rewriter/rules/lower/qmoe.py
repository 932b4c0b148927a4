"""com.microsoft QMoE with integer weights, as a few MatMulNBits that all experts share, or of the
experts that are chosen, whose packed weights are gathered at run time.

The second pays where few of many experts are taken, because no kernel is prepared for weights
that come at run time. An expert of 1.5 M weights in blocks of 32 and one token, one thread of an
x86: ONNX Runtime 1.32 takes 0.2 ms of 4 bits that are stored and 3.7 ms of gathered ones (8 bits:
9.9 and 4; 2 bits: 8.2 and 4); OpenVINO 2026.4.1 takes 0.1 ms stored, and 10 ms where codes come
out of gathered bytes by arithmetic (8 bits: 1.1 ms).
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import experts as parts
from rewriter.rules.parts import moe_layer, qmoe_inputs, routing, run_time_codes
from rewriter.site import Site
from rewriter.tape import Tape

_MATMUL = "com.microsoft::MatMulNBits"
_DENSE = (*parts.EMITS, *routing.EMITS)
_CHOSEN = (*_DENSE, *routing.SLOTS, "Gather")
_SPARED = {2: 4, 4: 24, 8: 4}
"""Experts for each one gathered, by the bits of a code, from which on MatMulNBits of them pays."""
_SPARED_IN_FLOATS = {2: 96, 4: 96, 8: 16}
"""The same of their MatMul."""


@lowers(
    "com.microsoft::QMoE",
    emits=(*_CHOSEN, f"{_MATMUL}[not B const]"),
    order=-2,
    opset=20,
    direct=True,
)
def chosen_packed_experts(op: Tape, site: Site) -> ir.Value:
    """The same of the experts that few tokens go to: MatMulNBits with gathered codes."""
    layer = qmoe_inputs.layer(op, site)
    return moe_layer.chosen_experts(op, site, layer, spared=_spared(site, _SPARED))


@lowers(
    "com.microsoft::QMoE",
    emits=(*_CHOSEN, *run_time_codes.EMITS),
    order=-1,
    opset=20,
    direct=True,
)
def chosen_dequantized_experts(op: Tape, site: Site) -> ir.Value:
    """The same of the experts that few tokens go to: MatMul with gathered codes, dequantized."""
    layer = qmoe_inputs.layer(op, site, run_time_codes.dequantized_product)
    return moe_layer.chosen_experts(op, site, layer, spared=_spared(site, _SPARED_IN_FLOATS))


@lowers("com.microsoft::QMoE", emits=(*_DENSE, _MATMUL), opset=20)
def dense_packed_experts(op: Tape, site: Site) -> ir.Value:
    """[W2_0 W2_1 ...] · (w · act([W1_0; W1_1; ...] · x + b1)) + w · b2, W as MatMulNBits."""
    return moe_layer.every_expert(op, site, qmoe_inputs.layer(op, site))


def _spared(site: Site, by_bits: Mapping[int, int]) -> int:
    return max(by_bits[qmoe_inputs.bits_of(site, fc)] for fc in ("fc1", "fc2"))
