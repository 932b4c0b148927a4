"""A node for every op that rules lower, and what else is known of what it may be given."""

from __future__ import annotations

from tests.fuzz.case import MS, Case
from tests.rewriter.every_input_contrib import CONTRIB
from tests.rewriter.every_input_standard import STANDARD, Changes

TABLE: dict[str, tuple[Case, Changes]] = {**STANDARD, **CONTRIB}

SAME: dict[str, dict[str, str]] = {
    "Cast": dict.fromkeys(("round_mode", "saturate"), "to bool, nothing is rounded")
    | {"to": "the rule takes one value"},
    f"{MS}EmbedLayerNormalization": {"mask_index_type": "tells only what mask_index looks like"},
    f"{MS}MatMulNBits": {"accuracy_level": "leave to round, not a part of the function"},
    f"{MS}QMoE": {"accuracy_level": "leave to round, not a part of the function"},
    f"{MS}GroupQueryAttention": dict.fromkeys(
        ("k_norm_epsilon", "q_norm_epsilon", "qk_norm_epsilon"), "of norms that are refused"
    ),
    "Range": {"stash_type": "of halves at opset 27, which no runtime takes"},
}
"""What does not change the function, or has one value, and why."""

PRECISION = {
    "Attention": "softmax_precision",
    "LayerNormalization": "stash_type",
    "RMSNormalization": "stash_type",
    "SimplifiedLayerNormalization": "stash_type",
}
"""In which type something is computed: ONNX Runtime and the reference have one and no other."""

_FC3 = ("fc3_experts_weights", "fc3_experts_bias")
ELSEWHERE: dict[str, tuple[str, ...]] = {
    f"{MS}MoE": (*_FC3, "swiglu_limit_after_activation"),
    f"{MS}QMoE": (
        *_FC3, "fc3_scales", "fc3_zero_points", "swiglu_limit_after_activation",
        "fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits",
    ),
}  # fmt: skip
"""What ONNX Runtime's CPU refuses: test_moe.py and test_qmoe.py have the formula."""

BECAUSE: dict[tuple[str, str], str] = {
    (f"{MS}Attention", "past_sequence_length"): "past_present_share_buffer",
    (f"{MS}Attention", "rotary_embedding_dim"): "do_rotary",
    (f"{MS}DecoderMaskedMultiHeadAttention", "beam_width"): "cache_indirection",
    (f"{MS}GroupQueryAttention", "k_norm_weight"): "q_norm_weight",
    (f"{MS}MatMulNBits", "weight_prepacked"): "prepacked weights",
}
"""Refused under the name of what it comes with."""
