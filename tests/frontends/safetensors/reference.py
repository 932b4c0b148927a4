"""Logits of llama and mixtral in float64, typed out: what the models of this folder are held to.

Formulas: "LLaMA" (arXiv 2302.13971), "Mixtral of Experts" (2401.04088), and the rope of Llama 3.1.
It shares nothing with the frontends, and is held to the goldens of transformers itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.frontends.safetensors.altered import Array

Tensors = Mapping[str, Array]


def logits(config: Mapping[str, Any], tensors: Tensors, ids: Array) -> Array:
    """Logits (S, V) of one sequence of tokens (S,)."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    epsilon = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        x = x + _attention(
            config, w, f"{at}.self_attn", _norm(w, f"{at}.input_layernorm", x, epsilon)
        )
        y = _norm(w, f"{at}.post_attention_layernorm", x, epsilon)
        if f"{at}.block_sparse_moe.gate.weight" in w:
            x = x + _experts(config, w, f"{at}.block_sparse_moe", y)
        else:
            x = x + _gated(w, y, *(f"{at}.mlp.{name}_proj" for name in ("gate", "up", "down")))
    return _linear(w, "lm_head", _norm(w, "model.norm", x, epsilon))


def _linear(w: Tensors, name: str, x: Array) -> Array:
    y: Array = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def _norm(w: Tensors, name: str, x: Array, epsilon: float) -> Array:
    y: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * w[f"{name}.weight"]
    return y


def _gated(w: Tensors, x: Array, gate: str, up: str, down: str) -> Array:
    g = _linear(w, gate, x)
    return _linear(w, down, g / (1 + np.exp(-g)) * _linear(w, up, x))


def _experts(config: Mapping[str, Any], w: Tensors, at: str, x: Array) -> Array:
    """The softmax is that of the chosen experts' logits."""
    y = np.zeros_like(x)
    for t, scores in enumerate(_linear(w, f"{at}.gate", x)):
        chosen = np.argsort(-scores)[: config["num_experts_per_tok"]]
        shares = np.exp(scores[chosen] - scores[chosen].max())
        for e, share in zip(chosen, shares / shares.sum(), strict=True):
            names = (f"{at}.experts.{e}.{part}" for part in ("w1", "w3", "w2"))
            y[t] += share * _gated(w, x[t], *names)
    return y


def _attention(config: Mapping[str, Any], w: Tensors, at: str, x: Array) -> Array:
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    tokens = len(x)
    q, k, v = (_linear(w, f"{at}.{name}_proj", x).reshape(tokens, -1, size) for name in "qkv")
    q, k = _turned(config, q), _turned(config, k)
    apart = np.arange(tokens)[:, None] - np.arange(tokens)
    seen = (apart >= 0) & (apart < (config.get("sliding_window") or tokens))
    y = np.zeros_like(q)
    for head in range(heads):
        of = head // (heads // shared)
        scores = np.where(seen, q[:, head] @ k[:, of].T / math.sqrt(size), -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        y[:, head] = shares / shares.sum(axis=-1, keepdims=True) @ v[:, of]
    return _linear(w, f"{at}.o_proj", y.reshape(tokens, -1))


def _turned(config: Mapping[str, Any], x: Array) -> Array:
    """The first half of every head is turned against the second, by position · frequency."""
    half, rope = x.shape[-1] // 2, config["rope_parameters"]
    turns = rope["rope_theta"] ** (-np.arange(half) / half)
    if rope["rope_type"] == "llama3":
        waves = rope["original_max_position_embeddings"] * turns / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = np.clip((waves - low) / (high - low), 0, 1)
        turns = kept * turns + (1 - kept) * turns / rope["factor"]
    angles = (np.arange(len(x))[:, None] * turns)[:, None]
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
