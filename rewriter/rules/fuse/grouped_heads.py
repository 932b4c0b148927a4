"""An Attention whose key heads were repeated before it, raised to one with grouped heads.

torch.onnx writes Attention with keys and values that an Expand has repeated for the query heads;
Attention repeats them itself, h // G (D04 of the public reports), and nothing is copied.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from rewriter.nodes import dims_of
from rewriter.rule import fuses
from rewriter.rules.parts.patterns import require_foreign
from rewriter.rules.parts.repeated_heads import before_repetition, repeated
from rewriter.site import Site
from rewriter.tape import Tape

_COPIED = (
    "is_causal", "left_window_size", "qk_matmul_output_mode", "right_window_size", "scale",
    "softcap", "softmax_precision",
)  # fmt: skip


def _pattern(op: Any, q: Any) -> Any:
    k, v = repeated(op, "k"), repeated(op, "v")
    return op.Attention(q, k, v, _allow_other_inputs=True)


@fuses("Attention", pattern=_pattern, emits=("Attention",), opset=23)
def grouped_heads(op: Tape, site: Site) -> ir.Value:
    """Attention(Q, repeated K, repeated V) as Attention(Q, K, V)."""
    require_foreign(site)
    key, value = (before_repetition(site, name) for name in ("k", "v"))
    if key is None or value is None:
        site.refuse("keys and values are not repeated head by head")
    same = (dims_of(key) or ())[1:2] == (dims_of(value) or ())[1:2]
    site.require(same, "keys and values are repeated differently")
    for name in ("present_key", "present_value", "qk_matmul_output"):
        site.require(not site.wants(name), f"{name} is used")
    site.require(site.optional("past_key") is None, "past_key has the repeated heads")
    site.require(site.optional("past_value") is None, "past_value has the repeated heads")
    site.ignore("q_num_heads", "kv_num_heads")  # of rank 3
    names = ("attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    rest = [site.optional(name) for name in names]
    while rest and rest[-1] is None:
        rest.pop()
    attributes = {name: site.attribute(name) for name in _COPIED if name in site.node.attributes}
    return op.emit("Attention", (site.input("Q"), key, value, *rest), attributes)[0]
