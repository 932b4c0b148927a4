"""Whether every query of an Attention is shown a key: what is known of that before it runs.

A row of the mask that shows no key gives 0 by -inf, and by a number what the rounding of score and
number leaves of the scores. In fp16 those are other numbers (capabilities/rows/qnn.tsv).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from rewriter.computed import computed
from rewriter.nodes import dims_of, present

LOW = -64.0
"""A row of numbers from here down shows no key: below it, the steps of fp16 are wider than 0.03."""


def may_hide_a_row(node: ir.Node, imports: Mapping[str, int]) -> bool:
    """Whether the mask of an ai.onnx Attention may hide every key of a query.

    False if there is none, or if its numbers are known and, with the causal bound, show a key to
    every query; a mask that comes at run time may.

    Args:
        node: with the shapes of its inputs, as far as known.
        imports: opset imports where it is.
    """
    mask = _given(node, 3)
    if mask is None:
        return False
    array = computed(mask, imports)
    if array is None or array.ndim == 0:
        return True
    shown = array if array.dtype == np.bool_ else array.astype(np.float64) > LOW
    if _number(node, "is_causal", 0):
        tokens, past = _tokens(node), _rows(_given(node, 4))
        if tokens is None or past is None:
            return True
        seen = np.arange(array.shape[-1]) <= past + np.arange(tokens)[:, None]
        shown = shown & seen if array.ndim > 1 else shown[None, :] & seen
    bounded = any(_number(node, f"{side}_window_size", -1) >= 0 for side in ("left", "right"))
    return bounded or _given(node, 6) is not None or not shown.any(axis=-1).all()


def _given(node: ir.Node, at: int) -> ir.Value | None:
    value = node.inputs[at] if at < len(node.inputs) else None
    return value if present(value) else None


def _number(node: ir.Node, name: str, default: int) -> int:
    """An attribute; one that a caller of the function around it sets is 1."""
    given = node.attributes.get(name)
    if given is None:
        return default
    return 1 if given.is_ref() else given.as_int()


def _tokens(node: ir.Node) -> int | None:
    """S, of Q (B, H, S, D) or (B, S, H·D)."""
    query = _given(node, 0)
    dims = None if query is None else dims_of(query)
    return None if dims is None else dims[-2]


def _rows(past: ir.Value | None) -> int | None:
    """Past rows of (B, H, P, D); none where there is no past."""
    if past is None:
        return 0
    dims = dims_of(past)
    return None if dims is None else dims[-2]
