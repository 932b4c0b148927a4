"""com.microsoft SkipLayerNormalization to additions and a norm.

s = input + skip + bias; output = (s - mean(s)) · inv_std_var · gamma + beta over the last axis;
the fourth output is s, the residual of the next layer (ORT contrib schema; D33).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from rewriter.rule import lowers
from rewriter.rules.parts import skips
from rewriter.site import Site
from rewriter.tape import Tape


@lowers("com.microsoft::SkipLayerNormalization", emits=("Add", "LayerNormalization"), opset=17)
def add_and_layer_norm(op: Tape, site: Site) -> Sequence[ir.Value | None]:
    """S = Add(Add(input, skip), bias); LayerNormalization(s, gamma, beta), s."""
    total = skips.with_skip(op, site)
    more = site.wants("mean") or site.wants("inv_std_var")
    norm = op.emit(
        "LayerNormalization",
        (total, site.input("gamma"), site.optional("beta")),
        {"axis": -1, "epsilon": site.number("epsilon"), "stash_type": 1},
        outputs=3 if more else 1,
    )
    return *norm, *[None] * (3 - len(norm)), total
