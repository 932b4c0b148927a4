"""The architectures that can be built, by the name GGUF gives them."""

from __future__ import annotations

from frontends.decoder.config import Architecture

_USUAL = ("attn_norm", "ffn_norm")
_AFTER = ("post_attention_norm", "post_ffw_norm")
_HEADS = ("attn_q_norm", "attn_k_norm")

ARCHITECTURES: dict[str, Architecture] = {
    "gemma": Architecture(activation="gelu_tanh", scales_embedding=True),
    "gemma2": Architecture(
        needs=(*_USUAL, *_AFTER),
        activation="gelu_tanh",
        scales_embedding=True,
        window_every=2,
        mean_scale_layers=46,
    ),
    "gemma3": Architecture(
        needs=(*_USUAL, *_AFTER, *_HEADS),
        activation="gelu_tanh",
        scales_embedding=True,
        window_every=6,
        sliding_base=10000.0,
        mean_scale_layers=62,
    ),
    "gemma4": Architecture(
        needs=(*_USUAL, *_AFTER, *_HEADS),
        activation="gelu_tanh",
        scales_embedding=True,
        normed_values=True,
        window_every=6,
        sliding_base=10000.0,
        attention_scale=1.0,
    ),
    "gpt-oss": Architecture(
        needs=("attn_norm", "attn_sinks", "post_attention_norm"),
        activation="swiglu_oai",
        ffn_norm="post_attention_norm",
        window_every=2,
        rounded_yarn=False,
    ),
    "granite": Architecture(permuted=True),
    "llama": Architecture(permuted=True),
    "olmo2": Architecture(needs=(*_AFTER, *_HEADS)),
    "phi3": Architecture(window_every=1),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(
        needs=(*_USUAL, "ffn_gate_inp_shexp", "ffn_down_shexp"), renormalized=False
    ),
    "qwen3": Architecture(needs=(*_USUAL, *_HEADS)),
    "qwen3moe": Architecture(needs=(*_USUAL, *_HEADS)),
    "smollm3": Architecture(permuted=True, rope_every=4),
    "stablelm": Architecture(norm="LayerNormalization", needs=("attn_norm",)),
    "starcoder2": Architecture(
        norm="LayerNormalization", activation="gelu_tanh", gated=False, window_every=1
    ),
}
"""Mistral and Mixtral models are ``llama`` in GGUF."""
