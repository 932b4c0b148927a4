"""Chunks of several sequences behind a past: GroupQueryAttention is told how long they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from rewriter.nodes import dims_of, present
from rewriter.passes.dim_fit import attentions
from rewriter.passes.stored import stored

_PAST, _COUNTS = 3, 16
"""Inputs past_key and query_seqlens."""


def count_tokens(model: ir.Model) -> None:
    """Give every GroupQueryAttention with several tokens of several sequences ``query_seqlens``.

    Without them ONNX Runtime's kernel takes such a chunk of one sequence only. All tokens count:
    what a chunk is padded with on the right is written over by the next.

    Args:
        model: edited in place; its dims are fixed.
    """
    for node in attentions(model):
        query, past = node.inputs[0], node.inputs[_PAST]
        dims = None if query is None else dims_of(query)
        if not present(past) or dims is None or len(dims) != 3:
            continue
        batch, tokens = dims[:2]
        given = node.inputs[_COUNTS] if len(node.inputs) > _COUNTS else None
        if batch is None or tokens is None or min(batch, tokens) < 2 or present(given):
            continue
        if len(node.inputs) <= _COUNTS:
            node.resize_inputs(_COUNTS + 1)
        counts = np.full(batch, tokens, np.int32)
        node.replace_input_with(_COUNTS, stored(model, "static_cache/tokens", counts))
