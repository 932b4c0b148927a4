"""From GGUF metadata to the numbers of a decoder; a key that is missing is named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontends.decoder.architectures import ARCHITECTURES
from frontends.decoder.config import Architecture, Decoder, Experts, Layer
from frontends.decoder.weights import Weights
from frontends.gguf.keys import Keys
from frontends.gguf.rope import Ropes
from rewriter.errors import BadInput


def decoder_of(
    path: Path, metadata: Mapping[str, Any], weights: Weights, context: int | None = None
) -> Decoder:
    """What a file computes.

    Args:
        path: of the file, for messages.
        metadata: its keys.
        weights: its tensors, by GGUF's names.
        context: positions to serve; all the model has by default.

    Raises:
        BadInput: the architecture is not known, or a key is missing or not handled.
    """
    keys = Keys(path, metadata)
    style = ARCHITECTURES.get(keys.arch)
    if style is None:
        raise BadInput(
            f"{path}: the architecture '{keys.arch}' cannot be built; known: "
            f"{', '.join(ARCHITECTURES)}"
        )
    hidden = keys.size("embedding_length")
    served = keys.size("context_length")
    served = min(context or served, served)
    layers = _layers(keys, style, weights, hidden, served)
    epsilon = (
        "attention.layer_norm_rms_epsilon"
        if style.norm == "RMSNormalization"
        else "attention.layer_norm_epsilon"
    )
    decoder = Decoder(
        name=keys.arch,
        architecture=style,
        vocabulary=_vocabulary(keys, metadata, weights),
        hidden=hidden,
        context=served,
        epsilon=keys.number(epsilon),
        layers=layers,
        experts=_experts(keys, style),
        per_layer=keys.size("embedding_length_per_layer_input", 0, least=0),
        embedding_scale=_embedding_scale(keys, style, hidden),
        residual_scale=keys.number("residual_scale", 1.0),
        attention_scale=_attention_scale(keys, style, hidden),
        attention_softcap=keys.number("attn_logit_softcapping", 0.0),
        final_softcap=keys.number("final_logit_softcapping", 0.0),
        logit_scale=1 / (keys.number("logit_scale", 1.0) or 1.0),
    )
    keys.require_understood()
    return decoder


def _vocabulary(keys: Keys, metadata: Mapping[str, Any], weights: Weights) -> int:
    """Rows of the embedding; there may be more of them than tokens, never fewer."""
    rows = weights["token_embd.weight"].shape[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Sequence) and len(tokens) > rows:
        raise BadInput(
            f"{keys.path}: the weight 'token_embd.weight' has {rows} rows for the {len(tokens)} "
            "tokens of the vocabulary; convert the model again"
        )
    return rows


def _experts(keys: Keys, style: Architecture) -> Experts | None:
    count = keys.size("expert_count", 0, least=0)
    if not count:
        return None
    used = keys.size("expert_used_count")
    if used > count:
        raise BadInput(
            f"{keys.path}: the key '{keys.arch}.expert_used_count' is {used}, and there are "
            f"{count} experts; convert the model again"
        )
    return Experts(count, used, bool(keys.get("expert_weights_norm", style.renormalized)))


def _embedding_scale(keys: Keys, style: Architecture, hidden: int) -> float:
    return math.sqrt(hidden) if style.scales_embedding else keys.number("embedding_scale", 1.0)


def _attention_scale(keys: Keys, style: Architecture, hidden: int) -> float:
    """The largest Gemma 2 and 3 scale by hidden size over heads, which no key says."""
    if keys.size("block_count") == style.mean_scale_layers:
        return float((hidden / keys.size("attention.head_count")) ** -0.5)
    return keys.number("attention.scale", style.attention_scale)


def _layers(
    keys: Keys, style: Architecture, weights: Weights, hidden: int, context: int
) -> tuple[Layer, ...]:
    count = keys.size("block_count")
    heads = keys.sizes("attention.head_count", count)
    kv_heads = keys.sizes("attention.head_count_kv", count, heads)
    sliding = _sliding(keys, style, count)
    window = keys.size("attention.sliding_window", 0, least=0)
    ropes = Ropes(keys, weights, context)
    first_sharing = count - keys.size("attention.shared_kv_layers", 0, least=0)
    layers: list[Layer] = []
    for i in range(count):
        narrow = sliding[i] and keys.get("attention.key_length_swa") is not None
        name = "attention.key_length_swa" if narrow else "attention.key_length"
        size = keys.size(name, hidden // heads[i])
        if heads[i] % kv_heads[i]:
            raise BadInput(
                f"{keys.path}: the key '{keys.arch}.attention.head_count_kv' is {kv_heads[i]}, of "
                f"which {heads[i]} query heads are no multiple; convert the model again"
            )
        _check_values(keys, name.replace("key", "value"), size)
        rotated = not style.rope_every or (i + 1) % style.rope_every != 0
        layers.append(
            Layer(
                heads=heads[i],
                kv_heads=kv_heads[i],
                head_dim=size,
                rope=ropes.of(size, sliding=sliding[i]) if rotated else None,
                window=window if sliding[i] else 0,
                shares=_source(keys, sliding, i, first_sharing),
            )
        )
    return tuple(layers)


def _check_values(keys: Keys, name: str, size: int) -> None:
    """Keys and values of one size are all that is built."""
    if keys.get(name, size) != size:
        raise BadInput(
            f"{keys.path}: the key '{keys.arch}.{name}' is {keys.get(name)}, and keys have {size} "
            "features; heads of two sizes cannot be built"
        )


def _sliding(keys: Keys, style: Architecture, count: int) -> list[bool]:
    """Whether each layer has a window.

    Raises:
        BadInput: the file has one, and it is not known which layers use it.
    """
    if not keys.size("attention.sliding_window", 0, least=0):
        return [False] * count
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, Sequence):
        return [bool(one) for one in keys.by_layer("attention.sliding_window_pattern", count)]
    every = keys.size("attention.sliding_window_pattern", style.window_every, least=0)
    if not every:
        raise BadInput(
            f"{keys.path}: has the key '{keys.arch}.attention.sliding_window', and it is not "
            f"known which layers of '{keys.arch}' use a window"
        )
    return [every == 1 or (i + 1) % every != 0 for i in range(count)]


def _source(keys: Keys, sliding: Sequence[bool], index: int, first_sharing: int) -> int | None:
    """The last layer of its kind that has keys and values of its own."""
    if index < first_sharing:
        return None
    alike = [i for i in range(first_sharing) if sliding[i] == sliding[index]]
    if not alike:
        raise BadInput(
            f"{keys.path}: the key '{keys.arch}.attention.shared_kv_layers' leaves layer {index} "
            "no layer of its kind to share keys and values with; convert the model again"
        )
    return alike[-1]
