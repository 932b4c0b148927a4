"""The ops of com.microsoft, for :mod:`every_input_cases`."""

# ruff: file-ignore[line-too-long] - a table, one change a line

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from rewriter import packing
from tests.fuzz.case import F32, I32, MS, Case, arg
from tests.rewriter.every_input_standard import (
    _RNG,
    GONE,
    Changes,
    codes,
    f,
    i,
    node,
    scales,
    table,
)

_HEADS: dict[str, Any] = {"num_heads": 2}
_PAST = {n: f(2, 2, 3, 8) for n in ("past_key", "past_value")}
_GQA = {
    "query": f(2, 1, 64), "key": f(2, 1, 32), "value": f(2, 1, 32),
    "past_key": f(2, 2, 3, 16), "past_value": f(2, 2, 3, 16),
    "seqlens_k": i([3, 3], np.int32), "total_sequence_length": i(4, np.int32, const=True),
}  # fmt: skip
_TURNED = {"do_rotary": 1, **table(8, 8)}
_CHUNK = {
    "query": f(2, 2, 64), "key": f(2, 2, 32), "value": f(2, 2, 32),
    "past_key": f(2, 2, 8, 16), "past_value": f(2, 2, 8, 16), "seqlens_k": i([3, 3], np.int32),
}  # fmt: skip
_MHA = {"query": f(2, 3, 16), "key": f(2, 3, 16), "value": f(2, 3, 16)}
_MASK = i([[1, 0, 1], [1, 1, 0]], np.int32)
_ONE = {
    "query": f(2, 1, 16), "key": f(2, 1, 16), "value": f(2, 1, 16), "past_key": f(2, 2, 5, 8),
    "past_value": f(2, 2, 5, 8), "past_sequence_length": i([2], np.int32),
}  # fmt: skip
_TOKENS = {"token_offset": i([[0, 1], [2, 3]], np.int32, const=True),
           "cumulative_sequence_length": i([0, 2, 3], np.int32, const=True)}  # fmt: skip
_IDS = i([[1, 0, 2], [2, 1, 0]], np.int32)
_MOE = {
    "input": f(1, 3, 6), "router_probs": f(3, 3), "fc1_experts_weights": f(3, 4, 6, const=True),
    "fc2_experts_weights": f(3, 6, 4, const=True),
}  # fmt: skip
_GATED: dict[str, Any] = {
    "activation_type": "swiglu", "swiglu_fusion": 1, "fc1_experts_weights": f(3, 8, 6, const=True)
}  # fmt: skip
_QMOE = {
    "input": f(1, 3, 32), "router_probs": f(3, 3), "fc1_experts_weights": codes(3, 16, 16),
    "fc1_scales": scales(3, 16), "fc2_experts_weights": codes(3, 32, 8), "fc2_scales": scales(3, 32),
}  # fmt: skip
_QGATED: dict[str, Any] = {
    "activation_type": "swiglu", "swiglu_fusion": 1, "fc1_experts_weights": codes(3, 32, 16),
    "fc1_scales": scales(3, 32),
}  # fmt: skip
_SKIP = {"input": f(2, 3, 6), "skip": f(2, 3, 6), "gamma": f(6)}
_Q4 = {"A": f(2, 64), "B": codes(4, 2, 16), "scales": scales(4, 2)}


def _first_rows(i: int, array: Any) -> Any:
    """The first token, and the two rows of a cache that everything has in it."""
    return array[:, :1] if i == 0 else array[:, :, :2]


CONTRIB: dict[str, tuple[Case, Changes]] = {
    f"{MS}Attention": (
        node(f"{MS}Attention", {"input": f(2, 3, 6), "weights": f(6, 48), "bias": f(48)}, **_HEADS),
        {
            "bias": {"bias": GONE}, "mask_index": {"mask_index": _MASK},
            "past": {"past": f(2, 2, 2, 2, 8), "outputs": 2},
            "attention_bias": {"attention_bias": f(2, 2, 3, 3)},
            "past_sequence_length": {"past_sequence_length": i(1, np.int32), "past": f(2, 2, 2, 6, 8), "past_present_share_buffer": 1, "outputs": 2},
            "do_rotary": {"do_rotary": 1}, "num_heads": {"num_heads": 4},
            "mask_filter_value": {"mask_filter_value": -2.0, "mask_index": _MASK},
            "past_present_share_buffer": {"past_sequence_length": i(1, np.int32), "past": f(2, 2, 2, 6, 8), "past_present_share_buffer": 1, "outputs": 2},
            "qkv_hidden_sizes": {"qkv_hidden_sizes": (8, 8, 32)},
            "rotary_embedding_dim": {"rotary_embedding_dim": 32, "do_rotary": 1},
            "scale": {"scale": 0.9}, "unidirectional": {"unidirectional": 1},
        },
    ),
    f"{MS}CausalConvWithState": (
        node(f"{MS}CausalConvWithState", {"input": f(2, 4, 5), "weight": f(4, 1, 3, const=True)}, (F32, F32)),
        {
            "bias": {"bias": f(4)}, "past_state": {"past_state": f(2, 4, 2)}, "activation": {"activation": "silu"},
            "dilation": {"dilation": 2}, "channels_last": {"channels_last": 1, "input": f(2, 5, 4)},
            "ndim": {"ndim": 2, "input": f(2, 4, 5, 5), "weight": f(4, 1, 3, 3, const=True)},
            "input_channel_offset": {"input_channel_offset": 1}, "input_channels": {"input_channels": 4},
            "state_channels_last": {"state_channels_last": 1}, "state_length": {"state_length": 3},
            "state_update_capacity": {"state_update_capacity": 2}, "state_window": {"state_window": 2},
        },
    ),
    f"{MS}DecoderMaskedMultiHeadAttention": (
        Case(f"{MS}DecoderMaskedMultiHeadAttention", _ONE, (F32, F32, F32), {**_HEADS, "past_present_share_buffer": 1}),
        {
            "key": {"key": GONE}, "value": {"value": GONE},
            "mask_index": {"mask_index": _MASK}, "attention_bias": {"attention_bias": f(1, 2, 1, 3)},
            "past_key": {"past_key": GONE}, "past_value": {"past_value": GONE},
            "past_sequence_length": {"past_sequence_length": i([3], np.int32)},
            "beam_width": {"beam_width": i([2], np.int32, const=True), "cache_indirection": i(_RNG.integers(0, 2, (1, 2, 5)), np.int32)},
            "cache_indirection": {"beam_width": i([2], np.int32, const=True), "cache_indirection": i([[[1] * 5, [0] * 5]], np.int32)},
            "bias": {"bias": f(48)}, "num_heads": {"num_heads": 1, "past_key": f(2, 1, 5, 16), "past_value": f(2, 1, 5, 16)},
            "mask_filter_value": {"mask_filter_value": -2.0, "mask_index": _MASK},
            "output_qk": {"output_qk": 1, "outputs": 4, "past_sequence_length": i([2], np.int32, const=True)}, "scale": {"scale": 0.9},
            "past_present_share_buffer": {"past_present_share_buffer": GONE},
        },
    ),
    f"{MS}DequantizeLinear": (
        node(f"{MS}DequantizeLinear", {"x": codes(3, 3), "x_scale": scales(3)}, axis=1),
        {"x_zero_point": {"x_zero_point": codes(3)}, "axis": {"axis": 0}},
    ),
    f"{MS}DynamicQuantizeMatMul": (
        node(f"{MS}DynamicQuantizeMatMul", {"A": f(2, 4), "B": codes(4, 3), "b_scale": scales(3)}),
        {"b_zero_point": {"b_zero_point": codes(3)}, "bias": {"bias": f(3)}},
    ),
    f"{MS}EmbedLayerNormalization": (
        node(f"{MS}EmbedLayerNormalization", {"input_ids": _IDS, "word_embedding": f(4, 6), "position_embedding": f(4, 6), "gamma": f(6), "beta": f(6)}, (F32, I32)),
        {
            "segment_ids": {"segment_ids": i([[0, 1, 0], [1, 1, 0]], np.int32), "segment_embedding": f(2, 6)},
            "segment_embedding": {"segment_ids": i([[0, 1, 0], [1, 1, 0]], np.int32), "segment_embedding": f(2, 6)},
            "mask": {"mask": _MASK}, "position_ids": {"position_ids": i([[2, 0, 3]], np.int32)},
            "epsilon": {"epsilon": 0.5},
        },
    ),
    f"{MS}FastGelu": (node(f"{MS}FastGelu", {"X": f(2, 4)}), {"bias": {"bias": f(4)}}),
    f"{MS}FusedMatMul": (
        node(f"{MS}FusedMatMul", {"A": f(3, 3, 3), "B": f(3, 3, 3)}),
        {
            "alpha": {"alpha": 0.4}, "transA": {"transA": 1}, "transB": {"transB": 1},
            "transBatchA": {"transBatchA": 1}, "transBatchB": {"transBatchB": 1},
        },
    ),
    f"{MS}GatherBlockQuantized": (
        node(f"{MS}GatherBlockQuantized", {"data": codes(4, 32), "indices": i([2, 0]), "scales": scales(4, 2)}, block_size=32),
        {
            "zero_points": {"zero_points": codes(4, 1)},
            "bits": {"bits": 8, "scales": scales(4, 1)}, "block_size": {"block_size": 16, "scales": scales(4, 4)},
            "gather_axis": {"gather_axis": 1, "data": arg(packing.integers(_RNG.integers(-8, 8, (4, 3, 32)), ir.DataType.INT4), const=True), "scales": scales(4, 3, 1), "quantize_axis": 2},
            "quantize_axis": {"quantize_axis": -1, "data": codes(4, 3, 16), "scales": scales(4, 3, 1)},
        },
    ),
    f"{MS}GroupQueryAttention": (
        Case(f"{MS}GroupQueryAttention", _GQA, (F32, F32, F32), {"num_heads": 4, "kv_num_heads": 2}),
        {
            "key": {"key": GONE, "value": GONE, "query": f(2, 1, 128)}, "value": {"value": GONE},
            "past_key": {"past_key": f(2, 2, 3, 16)}, "past_value": {"past_value": f(2, 2, 3, 16)},
            "cos_cache": dict(_TURNED), "sin_cache": dict(_TURNED), "do_rotary": dict(_TURNED),
            "position_ids": {"position_ids": i([[5], [1]]), **_TURNED},
            "attention_bias": {"attention_bias": f(2, 4, 1, 4)}, "head_sink": {"head_sink": f(4)},
            "k_scale": {"k_scale": f(1)}, "v_scale": {"v_scale": f(1)},
            "q_norm_weight": {"q_norm_weight": f(16), "k_norm_weight": f(16)},
            "k_norm_weight": {"q_norm_weight": f(16), "k_norm_weight": f(16)},
            "query_seqlens": {"query_seqlens": i([2, 1], np.int32), **_CHUNK, "defined": _first_rows},
            "causal": {"causal": 0, **{n: f(2, 4, w) for n, w in (("query", 64), ("key", 32), ("value", 32))}, "past_key": GONE, "past_value": GONE, "seqlens_k": i([3, 3], np.int32)},
            "k_quant_type": {"k_quant_type": "PER_TENSOR"}, "v_quant_type": {"v_quant_type": "PER_TENSOR"},
            "kv_cache_bit_width": {"kv_cache_bit_width": 8},
            "kv_num_heads": {"kv_num_heads": 1, "past_key": f(2, 1, 3, 32), "past_value": f(2, 1, 3, 32), "num_heads": 2},
            "num_heads": {"num_heads": 2, "past_key": f(2, 1, 3, 32), "past_value": f(2, 1, 3, 32), "kv_num_heads": 1},
            "local_window_size": {"local_window_size": 2}, "qk_output": {"qk_output": 1, "outputs": 4},
            "rotary_interleaved": {"rotary_interleaved": 1, **_TURNED}, "scale": {"scale": 0.9},
            "sliding_window_cache": {"sliding_window_cache": 1, "local_window_size": 2, "defined": _first_rows},
            "smooth_softmax": {"smooth_softmax": 1}, "softcap": {"softcap": 0.7},
        },
    ),
    f"{MS}MatMulIntegerToFloat": (
        node(f"{MS}MatMulIntegerToFloat", {"A": codes(2, 4), "B": codes(4, 3), "a_scale": scales(), "b_scale": scales(3)}),
        {"a_zero_point": {"a_zero_point": codes()}, "b_zero_point": {"b_zero_point": codes(3)}, "bias": {"bias": f(3)}},
    ),
    f"{MS}MatMulNBits": (
        node(f"{MS}MatMulNBits", _Q4, K=64, N=4, block_size=32),
        {
            "zero_points": {"zero_points": codes(4, 1)}, "bias": {"bias": f(4)},
            "g_idx": {"g_idx": i([0, 1] * 32, np.int32, const=True)},
            "K": {"K": 50, "A": f(2, 50)}, "N": {"N": 2, "B": codes(2, 2, 16), "scales": scales(2, 2)},
            "bits": {"bits": 8, "B": codes(4, 2, 32)}, "block_size": {"block_size": 16, "B": codes(4, 4, 8), "scales": scales(4, 4)},
            "weight_prepacked": {"weight_prepacked": 1},
        },
    ),
    f"{MS}MoE": (
        node(f"{MS}MoE", _MOE, k=1),
        {
            "fc1_experts_bias": {"fc1_experts_bias": f(3, 4)}, "fc2_experts_bias": {"fc2_experts_bias": f(3, 6)},
            "activation_alpha": {"activation_alpha": 0.4, **_GATED}, "activation_beta": {"activation_beta": 0.4, **_GATED},
            "activation_type": {"activation_type": "silu"}, "k": {"k": 2},
            "normalize_routing_weights": {"normalize_routing_weights": 1},
            "swiglu_fusion": {**_GATED}, "swiglu_limit": {"swiglu_limit": 0.2, **_GATED},
            "use_sparse_mixer": {"use_sparse_mixer": 1, "k": 2},
        },
    ),
    f"{MS}MultiHeadAttention": (
        node(f"{MS}MultiHeadAttention", _MHA, **_HEADS),
        {
            "key": {"key": GONE, "value": GONE, "query": f(2, 3, 2, 3, 8)}, "value": {"value": GONE, "key": f(2, 3, 2, 2, 8)},
            "bias": {"bias": f(48)}, "key_padding_mask": {"key_padding_mask": _MASK},
            "attention_bias": {"attention_bias": f(2, 2, 3, 3)},
            "past_key": {**_PAST, "outputs": 3}, "past_value": {**_PAST, "outputs": 3},
            "past_sequence_length": {"past_sequence_length": i([1], np.int32), "past_key": f(2, 2, 6, 8), "past_value": f(2, 2, 6, 8), "outputs": 3},
            "cache_indirection": {"cache_indirection": i([[[0] * 6, [1] * 6]], np.int32), "past_sequence_length": i([1], np.int32), "past_key": f(2, 2, 6, 8), "past_value": f(2, 2, 6, 8), "outputs": 3},
            "mask_filter_value": {"mask_filter_value": -2.0, "key_padding_mask": _MASK},
            "num_heads": {"num_heads": 4}, "scale": {"scale": 0.9}, "unidirectional": {"unidirectional": 1},
        },
    ),
    f"{MS}PackedAttention": (
        node(f"{MS}PackedAttention", {"input": f(3, 6), "weights": f(6, 24), "bias": f(24), **_TOKENS}, **_HEADS),
        {
            "attention_bias": {"attention_bias": f(2, 2, 2, 2)}, "num_heads": {"num_heads": 4},
            "qkv_hidden_sizes": {"qkv_hidden_sizes": (4, 4, 16)}, "scale": {"scale": 0.9},
        },
    ),
    f"{MS}PackedMultiHeadAttention": (
        node(f"{MS}PackedMultiHeadAttention", {"query": f(3, 8), "key": f(3, 8), "value": f(3, 8), **_TOKENS}, **_HEADS),
        {
            "key": {"key": GONE}, "value": {"value": GONE}, "bias": {"bias": f(24)},
            "attention_bias": {"attention_bias": f(2, 2, 2, 2)}, "num_heads": {"num_heads": 4},
            "mask_filter_value": {"mask_filter_value": -2.0}, "scale": {"scale": 0.9},
        },
    ),
    f"{MS}QMoE": (
        node(f"{MS}QMoE", _QMOE, k=1),
        {
            "fc1_scales": {"fc1_scales": GONE}, "fc2_scales": {"fc2_scales": GONE},
            "fc1_experts_bias": {"fc1_experts_bias": f(3, 16)}, "fc2_experts_bias": {"fc2_experts_bias": f(3, 32)},
            # ORT CPU takes the default for neither where only one has zero points
            "fc1_zero_points": {"fc1_zero_points": codes(3, 8), "fc2_zero_points": codes(3, 16)},
            "fc2_zero_points": {"fc1_zero_points": codes(3, 8), "fc2_zero_points": codes(3, 16)},
            "router_weights": {"router_weights": arg(_RNG.uniform(0.1, 1, (3, 3)).astype(np.float32))},
            **{n: {n: scales(3)} for n in ("fc1_global_scale", "fc2_global_scale", "fc1_act_scale", "fc2_act_scale", "fc1_act_block_scale", "fc2_act_block_scale")},
            "activation_alpha": {"activation_alpha": 0.4, **_QGATED}, "activation_beta": {"activation_beta": 0.4, **_QGATED},
            "activation_type": {"activation_type": "silu"}, "k": {"k": 2},
            "block_size": {"block_size": 16, "fc1_scales": scales(3, 16, 2), "fc2_scales": scales(3, 32, 1)},
            "expert_weight_bits": {"expert_weight_bits": 8, "fc1_experts_weights": codes(3, 16, 32), "fc2_experts_weights": codes(3, 32, 16)},
            "normalize_routing_weights": {"normalize_routing_weights": 1, "router_weights": arg(_RNG.uniform(0.1, 1, (3, 3)).astype(np.float32))},
            "quant_type": {"quant_type": "fp4"}, "swiglu_fusion": {**_QGATED},
            "swiglu_limit": {"swiglu_limit": 0.2, **_QGATED},
            "use_sparse_mixer": {"use_sparse_mixer": 1, "k": 2}, "weights_prepacked": {"weights_prepacked": 1},
        },
    ),
    f"{MS}QuantizeLinear": (
        node(f"{MS}QuantizeLinear", {"x": f(3, 3), "y_scale": scales(3)}, (ir.DataType.UINT8,), axis=1),
        {"y_zero_point": {"y_zero_point": codes(3)}, "axis": {"axis": 0}},
    ),
    f"{MS}QuickGelu": (node(f"{MS}QuickGelu", {"X": f(9)}), {"alpha": {"alpha": 0.4}}),
    f"{MS}RotaryEmbedding": (
        node(f"{MS}RotaryEmbedding", {"input": f(2, 3, 32), "position_ids": i([2]), **table(8, 4)}),
        {
            "interleaved": {"interleaved": 1}, "is_packed_batching": {"is_packed_batching": 1},
            "num_heads": {"num_heads": 2, "rotary_embedding_dim": 8},
            "rotary_embedding_dim": {"rotary_embedding_dim": 8, "num_heads": 2}, "scale": {"scale": 0.5},
        },
    ),
    f"{MS}SkipLayerNormalization": (
        node(f"{MS}SkipLayerNormalization", _SKIP),
        {"beta": {"beta": f(6)}, "bias": {"bias": f(6)}, "epsilon": {"epsilon": 0.5}},
    ),
    f"{MS}SkipSimplifiedLayerNormalization": (
        node(f"{MS}SkipSimplifiedLayerNormalization", _SKIP),
        {"bias": {"bias": f(6)}, "epsilon": {"epsilon": 0.5}},
    ),
    f"{MS}TransposeMatMul": (
        node(f"{MS}TransposeMatMul", {"A": f(3, 3), "B": f(3, 3)}),
        {"alpha": {"alpha": 0.4}, "transA": {"transA": 1}, "transB": {"transB": 1}},
    ),
}  # fmt: skip
