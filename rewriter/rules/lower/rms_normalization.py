"""RMSNormalization to the form that an NPU takes, or to primitives.

y = x / sqrt(mean(x²) + epsilon) · scale over the axes from ``axis`` on, computed in
``stash_type`` (onnx Operators.md, RMSNormalization 23). Inputs and attributes are those of
SimplifiedLayerNormalization, whose primitives serve here too.
"""

from __future__ import annotations

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.lower.simplified_layer_normalization import rms_primitives
from rewriter.rules.parts import norms
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("RMSNormalization", emits=("RMSNormalization", "Reshape"), order=0, opset=23, free=True)
def rms_norm_of_rows(op: Tape, site: Site) -> ir.Value:
    """RMSNormalization over the last axis of rank 3 (D32: at rank 4 a device was wrong)."""
    return norms.rms_of_rows(op, site)


lowers(
    "RMSNormalization",
    emits=("Add", "Cast", "Div", "Mul", "ReduceMean", "Sqrt"),
    order=1,
    opset=23,
    name="rms_normalization_primitives",
)(rms_primitives)
