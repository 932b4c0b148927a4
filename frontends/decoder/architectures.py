"""The architectures that can be built, by the name GGUF gives them."""

from __future__ import annotations

from frontends.decoder.config import Architecture

ARCHITECTURES: dict[str, Architecture] = {
    "gemma": Architecture(activation="gelu_tanh", scales_embedding=True),
    "gemma2": Architecture(
        activation="gelu_tanh", scales_embedding=True, window_every=2, mean_scale_layers=46
    ),
    "gemma3": Architecture(
        activation="gelu_tanh",
        scales_embedding=True,
        window_every=6,
        sliding_base=10000.0,
        mean_scale_layers=62,
    ),
    "gemma4": Architecture(
        activation="gelu_tanh",
        scales_embedding=True,
        normed_values=True,
        window_every=6,
        sliding_base=10000.0,
        attention_scale=1.0,
    ),
    "gpt-oss": Architecture(
        activation="swiglu_oai",
        ffn_norm="post_attention_norm",
        window_every=2,
        rounded_yarn=False,
    ),
    "granite": Architecture(permuted=True),
    "llama": Architecture(permuted=True),
    "olmo2": Architecture(),
    "phi3": Architecture(window_every=1),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(renormalized=False),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "smollm3": Architecture(permuted=True, rope_every=4),
    "stablelm": Architecture(norm="LayerNormalization"),
    "starcoder2": Architecture(norm="LayerNormalization", activation="gelu_tanh", window_every=1),
}
"""Mistral models are ``llama`` in GGUF."""
