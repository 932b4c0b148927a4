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
    hidden = int(keys.needed("embedding_length"))
    served = min(context or math.inf, int(keys.needed("context_length")))
    layers = _layers(keys, style, weights, hidden, int(served))
    epsilon = (
        "attention.layer_norm_rms_epsilon"
        if style.norm == "RMSNormalization"
        else "attention.layer_norm_epsilon"
    )
    decoder = Decoder(
        name=keys.arch,
        architecture=style,
        vocabulary=weights["token_embd.weight"].shape[0],
        hidden=hidden,
        context=int(served),
        epsilon=float(keys.needed(epsilon)),
        layers=layers,
        experts=_experts(keys, style),
        per_layer=int(keys.get("embedding_length_per_layer_input", 0)),
        embedding_scale=_embedding_scale(keys, style, hidden),
        residual_scale=float(keys.get("residual_scale", 1.0)),
        attention_scale=_attention_scale(keys, style, hidden),
        attention_softcap=float(keys.get("attn_logit_softcapping", 0.0)),
        final_softcap=float(keys.get("final_logit_softcapping", 0.0)),
        logit_scale=1 / float(keys.get("logit_scale", 1.0)),
    )
    keys.require_understood()
    return decoder


def _experts(keys: Keys, style: Architecture) -> Experts | None:
    count = int(keys.get("expert_count", 0))
    if not count:
        return None
    renormalized = bool(keys.get("expert_weights_norm", style.renormalized))
    return Experts(count, int(keys.needed("expert_used_count")), renormalized)


def _embedding_scale(keys: Keys, style: Architecture, hidden: int) -> float:
    return math.sqrt(hidden) if style.scales_embedding else float(keys.get("embedding_scale", 1.0))


def _attention_scale(keys: Keys, style: Architecture, hidden: int) -> float:
    """The largest Gemma 2 and 3 scale by hidden size over heads, which no key says."""
    if (keys.arch, keys.get("block_count")) in {("gemma2", 46), ("gemma3", 62)}:
        return float((hidden / keys.needed("attention.head_count")) ** -0.5)
    return float(keys.get("attention.scale", style.attention_scale))


def _layers(
    keys: Keys, style: Architecture, weights: Weights, hidden: int, context: int
) -> tuple[Layer, ...]:
    count = int(keys.needed("block_count"))
    heads = keys.by_layer("attention.head_count", count)
    kv_heads = keys.by_layer("attention.head_count_kv", count, heads[0])
    sliding = _sliding(keys, style, count)
    window = int(keys.get("attention.sliding_window", 0))
    ropes = Ropes(keys, weights, context)
    first_sharing = count - int(keys.get("attention.shared_kv_layers", 0))
    layers: list[Layer] = []
    for i in range(count):
        narrow = sliding[i] and keys.get("attention.key_length_swa") is not None
        name = "attention.key_length_swa" if narrow else "attention.key_length"
        size = int(keys.get(name, hidden // heads[i]))
        _check_values(keys, name.replace("key", "value"), size)
        rotated = not style.rope_every or (i + 1) % style.rope_every != 0
        layers.append(
            Layer(
                heads=int(heads[i]),
                kv_heads=int(kv_heads[i]),
                head_dim=size,
                rope=ropes.of(size, sliding=sliding[i]) if rotated else None,
                window=window if sliding[i] else 0,
                shares=_source(sliding, i, first_sharing),
            )
        )
    return tuple(layers)


def _check_values(keys: Keys, name: str, size: int) -> None:
    """Keys and values of one size are all that is built."""
    if int(keys.get(name, size)) != size:
        raise BadInput(
            f"{keys.path}: the key '{keys.arch}.{name}' is {keys.get(name)}, and keys have {size} "
            "features; heads of two sizes cannot be built"
        )


def _sliding(keys: Keys, style: Architecture, count: int) -> list[bool]:
    """Whether each layer has a window.

    Raises:
        BadInput: the file has one, and it is not known which layers use it.
    """
    if not int(keys.get("attention.sliding_window", 0)):
        return [False] * count
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, Sequence):
        return [bool(one) for one in keys.by_layer("attention.sliding_window_pattern", count)]
    every = int(pattern or style.window_every)
    if not every:
        raise BadInput(
            f"{keys.path}: has the key '{keys.arch}.attention.sliding_window', and it is not "
            f"known which layers of '{keys.arch}' use a window"
        )
    return [every == 1 or (i + 1) % every != 0 for i in range(count)]


def _source(sliding: Sequence[bool], index: int, first_sharing: int) -> int | None:
    """The last layer of its kind that has keys and values of its own."""
    if index < first_sharing:
        return None
    return max(i for i in range(first_sharing) if sliding[i] == sliding[index])
