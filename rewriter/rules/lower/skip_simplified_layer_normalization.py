"""com.microsoft SkipSimplifiedLayerNormalization to an addition and a norm.

s = input + skip + bias; output = s / sqrt(mean(s²) + epsilon) · gamma; the fourth output is s,
the residual of the next layer (ORT contrib schema; D33 of the public reports).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "com.microsoft::SkipSimplifiedLayerNormalization",
    emits=("Add", "SimplifiedLayerNormalization"),
    opset=7,
)
def add_and_norm(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """S = Add(Add(input, skip), bias); SimplifiedLayerNormalization(s, gamma), s."""
    total = op.Add(site.input("input"), site.input("skip"))
    bias = site.optional("bias")
    if bias is not None:
        total = op.Add(total, bias)
    norm = op.SimplifiedLayerNormalization(
        total, site.input("gamma"), axis=-1, epsilon=site.number("epsilon"), stash_type=1
    )
    return norm, None, None, total
