"""com.microsoft CausalConvWithState, of decoders that mix attention with short convolutions.

Of x (B, C, S) behind a state of (K - 1)·dilation columns (zeros if there is none) every channel is
convolved with its own kernel of K, so that a token sees itself and those before it; the last
columns are the next state (ORT contrib schemas). LFM2 and Qwen 3.5 have it in most of their layers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts.shorthand import sliced
from rewriter.site import Site
from rewriter.tape import Tape

_SEQUENCE = 2


@lowers(
    "com.microsoft::CausalConvWithState",
    emits=("Concat", "Conv", "Mul", "Sigmoid", "Slice"),
    opset=13,
)
def convolution_of_state_and_input(op: Tape, site: Site) -> tuple[ir.Value, ir.Value]:
    """Conv of [state, x] with a group for each channel, and SiLU of it; the state is its end."""
    x, weight = site.input("input"), site.input("weight")
    site.require(site.integer("ndim") == 1, "more than one ndim is not a sequence")
    shape, kernel = site.shape(x, "input"), site.shape(weight, "weight")
    site.require(len(shape) == len(kernel) == 3, "channels and sequence have to be two axes")
    site.require(not site.wants("state_update"), "state_update is an output of CUDA's kernel alone")
    batch, channels, length = shape
    dilation = site.integer("dilation")
    width = (kernel[_SEQUENCE] - 1) * dilation
    site.require(width > 0, "a weight of one column needs no state")
    past = site.optional("past_state")
    if past is None:
        zeros = np.zeros((batch, channels, width), np.float32)
        past = op.const(zeros, x.dtype, name="no_state")
    columns = op.Concat(past, x, axis=_SEQUENCE)
    y = op.Conv(columns, weight, site.optional("bias"), group=channels, dilations=[dilation])
    activation = site.attribute("activation")
    site.require(activation in {"none", "silu", "swish"}, f"activation {activation} is not known")
    if activation != "none":
        y = op.Mul(y, op.Sigmoid(y))
    return y, sliced(op, columns, length, length + width, _SEQUENCE)
