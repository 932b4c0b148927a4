"""com.microsoft SkipSimplifiedLayerNormalization to an addition and a norm.

s = input + skip + bias; output = s / sqrt(mean(s²) + epsilon) · gamma; the third output is
1 / sqrt(mean(s²) + epsilon); the fourth is s, the residual of the next layer (ORT contrib schema;
D33 of the public reports). There is no mean: ONNX Runtime leaves the second output unwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import skips
from rewriter.site import Site
from rewriter.tape import Tape


@lowers(
    "com.microsoft::SkipSimplifiedLayerNormalization",
    emits=("Add", "SimplifiedLayerNormalization"),
    opset=7,
)
def add_and_norm(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """S = Add(Add(input, skip), bias); SimplifiedLayerNormalization(s, gamma), s."""
    total = skips.with_skip(op, site)
    more = site.wants("inv_std_var")
    norm = op.emit(
        "SimplifiedLayerNormalization",
        (total, site.input("gamma")),
        {"axis": -1, "epsilon": site.number("epsilon"), "stash_type": 1},
        outputs=2 if more else 1,
    )
    return norm[0], None, norm[1] if more else None, total
